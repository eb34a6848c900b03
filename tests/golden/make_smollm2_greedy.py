"""Writes greedy answers of SmolLM2-135M-Instruct as torch gives them.

Needs `torch`, `transformers` and `gguf`, in an environment of their own:

  python make_smollm2_greedy.py PATH_TO_GGUF
"""

import json
import pathlib
import sys

import torch  # pyright: ignore[reportMissingImports]
import transformers

PROMPTS = (
  "What is the capital of France?",
  "Name three fruits.",
  "Write one sentence about the sea.",
)
NUM_NEW_TOKENS = 16


def main(gguf_path: str) -> None:
  """Answers each prompt, each alone, in float32."""
  path = pathlib.Path(gguf_path)
  tokenizer = transformers.AutoTokenizer.from_pretrained(
    path.parent, gguf_file=path.name
  )
  model = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=torch.float32
  ).eval()
  answers = []
  for prompt in PROMPTS:
    messages = [{"role": "user", "content": prompt}]
    prompt_ids = tokenizer.apply_chat_template(
      messages, add_generation_prompt=True, return_dict=False
    )
    row = list(prompt_ids)
    margins = []
    with torch.no_grad():
      for _ in range(NUM_NEW_TOKENS):
        logits = model(input_ids=torch.tensor([row])).logits[0, -1]
        best = torch.topk(logits, 2).values
        margins.append(round(float(best[0] - best[1]), 4))
        row.append(int(logits.argmax()))
        if row[-1] == tokenizer.eos_token_id:
          break
    answers.append(
      {
        "prompt": prompt,
        "prompt_ids": list(prompt_ids),
        "answer_ids": row[len(prompt_ids) :],
        "answer": tokenizer.decode(row[len(prompt_ids) :]),
        "smallest_margin": min(margins),
      }
    )
    print(answers[-1])
  record = {"transformers": transformers.__version__, "answers": answers}
  target = pathlib.Path(__file__).parent / "smollm2_greedy.json"
  target.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
  main(sys.argv[1])
