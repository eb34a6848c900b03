"""Decoder-only transformer of the Llama, Qwen2 and Qwen3 families.

Parameters are a plain nested dict and every function is pure. A weight says
its shape, logical axes and initialiser once, in `param_specs`; initial values
and shardings derive from there. Layers are stacked on a leading axis and run
by one scan, which compiles fast; or they are a tuple and run one by one, which
decodes fast, see `unstack_layers`.
"""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from arl_jax.models import rope
from arl_jax.models.rope import RopeScaling

Params = Mapping[str, Any]

# Fields of `ModelConfig` that are dimensions of weights.
_SIZES = (
  "vocab_size",
  "num_layers",
  "model_dim",
  "num_heads",
  "num_kv_heads",
  "head_dim",
  "mlp_dim",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """Shape of a transformer; hashable, so it can be a static argument.

  Attributes:
    vocab_size: rows of the embedding, V.
    num_layers: L.
    model_dim: width of the residual stream, D.
    num_heads: query heads, N.
    num_kv_heads: key and value heads, K; divides N.
    head_dim: H; need not be D / N.
    mlp_dim: width of the gated MLP, F.
    rope_theta: base of the rotary frequencies.
    rope_scaling: stretch of the rotary frequencies, if any.
    norm_eps: added to the mean square in RMSNorm.
    tie_embeddings: the head is the transposed embedding.
    qkv_bias: biases on the query, key and value projections.
    out_bias: bias on the attention's output projection.
    mlp_bias: biases in the MLP.
    qk_norm: RMSNorm on each query and key head.
    dtype: of activations; norms and softmax run in float32.
    remat: what the backward pass recomputes: `none`, `dots` or `full`.
    num_frozen_layers: lowest layers that get no gradient, nor does the input
      embedding below them; their backward pass is not run.
    scan_unroll: layers per iteration of the scan over layers.
  """

  vocab_size: int
  num_layers: int
  model_dim: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  mlp_dim: int
  rope_theta: float = 10000.0
  rope_scaling: RopeScaling | None = None
  norm_eps: float = 1e-6
  tie_embeddings: bool = False
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  qk_norm: bool = False
  dtype: str = "float32"
  remat: str = "none"
  num_frozen_layers: int = 0
  scan_unroll: int = 1

  def __post_init__(self) -> None:
    for name in (*_SIZES, "scan_unroll"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f"num_heads is {self.num_heads}; it must be a multiple of"
        f" num_kv_heads, {self.num_kv_heads}"
      )
    if self.head_dim % 2:
      raise ValueError(f"head_dim is {self.head_dim}; it must be even")
    if not 0 <= self.num_frozen_layers <= self.num_layers:
      raise ValueError(
        f"num_frozen_layers is {self.num_frozen_layers}; expected 0 to"
        f" num_layers, {self.num_layers}"
      )
    if self.remat not in _REMAT_POLICIES:
      raise ValueError(
        f"remat is {self.remat!r}; expected one of {sorted(_REMAT_POLICIES)}"
      )


class ParamSpec(NamedTuple):
  """What one weight is before it has values.

  Attributes:
    shape: its dimensions.
    axes: the logical name of each dimension, for sharding; None stays whole.
    stddev: of its normal initial values; 0 gives zeros, None gives ones.
  """

  shape: tuple[int, ...]
  axes: tuple[str | None, ...]
  stddev: float | None


_REMAT_POLICIES: dict[str, Any] = {
  "none": None,
  "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  "full": jax.checkpoint_policies.nothing_saveable,
}


# Weights.


def param_specs(config: ModelConfig) -> dict[str, Any]:
  """Returns the tree of `ParamSpec` that mirrors the parameters."""
  c = config
  layers, dim, mlp = c.num_layers, c.model_dim, c.mlp_dim
  queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
  fan_in = dim**-0.5
  # Residual branches start small so that depth does not inflate the stream.
  depth = (2 * layers) ** -0.5

  def stacked(shape, axes, stddev):
    return ParamSpec((layers, *shape), ("layers", *axes), stddev)

  layer = {
    "attn_norm": stacked((dim,), ("norm",), None),
    "wq": stacked((dim, queries), ("embed", "heads"), fan_in),
    "wk": stacked((dim, keys), ("embed", "kv_heads"), fan_in),
    "wv": stacked((dim, keys), ("embed", "kv_heads"), fan_in),
    "wo": stacked((queries, dim), ("heads", "embed"), queries**-0.5 * depth),
    "mlp_norm": stacked((dim,), ("norm",), None),
    "w_gate": stacked((dim, mlp), ("embed", "mlp"), fan_in),
    "w_up": stacked((dim, mlp), ("embed", "mlp"), fan_in),
    "w_down": stacked((mlp, dim), ("mlp", "embed"), mlp**-0.5 * depth),
  }
  if c.qkv_bias:
    layer["bq"] = stacked((queries,), ("heads",), 0.0)
    layer["bk"] = stacked((keys,), ("kv_heads",), 0.0)
    layer["bv"] = stacked((keys,), ("kv_heads",), 0.0)
  if c.out_bias:
    layer["bo"] = stacked((dim,), ("norm",), 0.0)
  if c.qk_norm:
    layer["q_norm"] = stacked((c.head_dim,), ("norm",), None)
    layer["k_norm"] = stacked((c.head_dim,), ("norm",), None)
  if c.mlp_bias:
    layer["b_gate"] = stacked((mlp,), ("mlp",), 0.0)
    layer["b_up"] = stacked((mlp,), ("mlp",), 0.0)
    layer["b_down"] = stacked((dim,), ("norm",), 0.0)
  # A tied table is also the head, so it starts at the head's scale.
  embed_stddev = 0.02 if c.tie_embeddings else 1.0
  specs = {
    # Looked up by row, so it is split by rows alone: columns on other devices
    # would make every looked-up token change its place.
    "embed": ParamSpec((c.vocab_size, dim), ("rows", None), embed_stddev),
    "layers": layer,
    "final_norm": ParamSpec((dim,), ("norm",), None),
  }
  if not c.tie_embeddings:
    specs["unembed"] = ParamSpec((dim, c.vocab_size), ("embed", "vocab"), 0.02)
  return specs


def init_params(key: jax.Array, config: ModelConfig) -> dict[str, Any]:
  """Returns float32 parameters drawn as `param_specs` says."""
  leaves, tree = jax.tree.flatten(
    param_specs(config), is_leaf=lambda x: isinstance(x, ParamSpec)
  )
  keys = jax.random.split(key, len(leaves))

  def draw(key, spec):
    if spec.stddev is None:
      return jnp.ones(spec.shape, jnp.float32)
    return spec.stddev * jax.random.normal(key, spec.shape, jnp.float32)

  return tree.unflatten(draw(k, s) for k, s in zip(keys, leaves, strict=True))


def unembedding(
  params: Params, config: ModelConfig, *, transposed: bool = False
) -> jax.Array:
  """Returns the output head `[D, V]` in the dtype of the activations.

  Args:
    params: weights.
    config: shape of the transformer.
    transposed: return `[V, D]`, which a tied embedding already is.
  """
  head = params["embed" if config.tie_embeddings else "unembed"]
  head = head.astype(config.dtype)
  return head if transposed == config.tie_embeddings else head.T


def unstack_layers(params: Params) -> dict[str, Any]:
  """Returns the parameters with the layers as a tuple of trees.

  A step that feeds few tokens is as fast as the weights can be read. A scan
  slices them out of the stack, which reads and writes them once more.
  """
  layers = params["layers"]
  if isinstance(layers, tuple):
    return dict(params)
  num_layers = jax.tree.leaves(layers)[0].shape[0]
  return {
    **params,
    "layers": tuple(
      jax.tree.map(lambda a, i=i: a[i], layers) for i in range(num_layers)
    ),
  }


# Forward pass.

# Gives the attention output `[B, T, N, H]` of a layer for `(cache, q, k, v)`,
# and the layer's cache with the keys and values written, `()` without one.
AttendFn = Callable[..., tuple[jax.Array, Any]]


def forward(
  params: Params,
  tokens: jax.Array,
  positions: jax.Array,
  segment_ids: jax.Array,
  *,
  config: ModelConfig,
) -> jax.Array:
  """Runs the transformer over whole rows.

  A token attends to itself and to earlier tokens of its own segment.

  Args:
    params: weights, as `init_params` lays them out.
    tokens: int32 `[B, T]` token ids.
    positions: int32 `[B, T]` positions, restarting in every segment.
    segment_ids: int32 `[B, T]` 0 is padding, >0 tells packed rows apart.
    config: shape of the transformer.

  Returns:
    `[B, T, D]` hidden states after the final norm.
  """
  num_tokens = tokens.shape[1]
  causal = jnp.tril(jnp.ones((num_tokens, num_tokens), jnp.bool_))
  same_segment = segment_ids[:, :, None] == segment_ids[:, None, :]
  mask = causal[None] & same_segment

  def attend_rows(cache, q, k, v):
    keys, values = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
    return attend(q, keys, values, mask), cache

  hidden, _ = run_layers(
    params, tokens, positions, (), attend_rows, config=config
  )
  return hidden


def attend(
  q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array
) -> jax.Array:
  """Grouped-query attention with the softmax in float32.

  Args:
    q: `[B, T, N, H]` queries.
    keys: `[B, K, S, H]`; K divides N.
    values: `[B, K, S, H]`.
    mask: bool `[B, T, S]` True where a query may look; at least once in each
      row.

  Returns:
    `[B, T, N, H]` outputs, in the dtype of `q`.
  """
  num_rows, num_tokens, num_heads, head_dim = q.shape
  num_kv_heads = keys.shape[1]
  # The queries of a key head stand below each other, so that both products
  # are plain batched matrix products: XLA's CPU backend is slow at others.
  grouped = q.reshape(num_rows, num_tokens, num_kv_heads, -1, head_dim)
  grouped = grouped.transpose(0, 2, 3, 1, 4)
  grouped = grouped.reshape(num_rows, num_kv_heads, -1, head_dim)
  scores = jnp.einsum(
    "bkmh,bksh->bkms", grouped, keys, preferred_element_type=jnp.float32
  ) * (head_dim**-0.5)
  visible = jnp.tile(mask, (1, num_heads // num_kv_heads, 1))
  scores = jnp.where(visible[:, None], scores, -jnp.inf)
  weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
  out = jnp.einsum("bkms,bksh->bkmh", weights, values)
  out = out.reshape(num_rows, num_kv_heads, -1, num_tokens, head_dim)
  return out.transpose(0, 3, 1, 2, 4).reshape(q.shape)


def run_layers(
  params: Params,
  tokens: jax.Array,
  positions: jax.Array,
  cache: Any,
  attend_fn: AttendFn,
  *,
  config: ModelConfig,
) -> tuple[jax.Array, Any]:
  """Embeds tokens and runs the layers.

  Args:
    params: weights, as `init_params` or `unstack_layers` lays them out.
    tokens: int32 `[B, T]` token ids.
    positions: int32 `[B, T]` rotary positions.
    cache: a tuple with what `attend_fn` reads and writes of each layer, for
      layers that are a tuple too; `()` for none.
    attend_fn: attention of one layer, see `AttendFn`.
    config: shape of the transformer.

  Returns:
    `[B, T, D]` hidden states after the final norm, with the new cache.
  """
  c = config
  dtype = jnp.dtype(c.dtype)
  frequencies = rope.rope_frequencies(c.head_dim, c.rope_theta, c.rope_scaling)
  # Behind a barrier, or the compiler computes them again in every layer.
  cos, sin = jax.lax.optimization_barrier(
    rope.rotations(positions, *frequencies)
  )
  x = params["embed"][tokens].astype(dtype)

  def layer_step(x, weights, cache=()):
    w = jax.tree.map(lambda a: a.astype(dtype), weights)
    y = rms_norm(x, w["attn_norm"], c.norm_eps)
    q = _heads(_project(y, w["wq"], w.get("bq")), c.num_heads)
    k = _heads(_project(y, w["wk"], w.get("bk")), c.num_kv_heads)
    v = _heads(_project(y, w["wv"], w.get("bv")), c.num_kv_heads)
    if c.qk_norm:
      q = rms_norm(q, w["q_norm"], c.norm_eps)
      k = rms_norm(k, w["k_norm"], c.norm_eps)
    q = rope.apply_rope(q, cos, sin)
    k = rope.apply_rope(k, cos, sin)
    attended, cache = attend_fn(cache, q, k, v)
    attended = attended.reshape(*x.shape[:2], -1)
    x = x + _project(attended, w["wo"], w.get("bo"))
    y = rms_norm(x, w["mlp_norm"], c.norm_eps)
    gate = jax.nn.silu(_project(y, w["w_gate"], w.get("b_gate")))
    up = _project(y, w["w_up"], w.get("b_up"))
    x = x + _project(gate * up, w["w_down"], w.get("b_down"))
    return x, cache

  layers = params["layers"]
  if isinstance(layers, tuple):
    caches = cache or ((),) * c.num_layers
    cache = []
    for weights, layer_cache in zip(layers, caches, strict=True):
      x, layer_cache = layer_step(x, weights, layer_cache)
      cache.append(layer_cache)
    return rms_norm(x, params["final_norm"], c.norm_eps), tuple(cache)
  if cache:
    raise ValueError("a cache needs params whose layers are unstacked")
  if c.remat != "none":
    layer_step = jax.checkpoint(layer_step, policy=_REMAT_POLICIES[c.remat])
  if c.num_frozen_layers:
    frozen = jax.tree.map(lambda a: a[: c.num_frozen_layers], layers)
    layers = jax.tree.map(lambda a: a[c.num_frozen_layers :], layers)
    x, _ = jax.lax.scan(layer_step, x, frozen, unroll=c.scan_unroll)
    x = jax.lax.stop_gradient(x)
  x, _ = jax.lax.scan(layer_step, x, layers, unroll=c.scan_unroll)
  return rms_norm(x, params["final_norm"], c.norm_eps), ()


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
  """Scales `x` to unit mean square on its last axis, in float32."""
  wide = x.astype(jnp.float32)
  scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
  shape = (1,) * (x.ndim - 1) + weight.shape
  return (wide * scale).astype(x.dtype) * weight.reshape(shape).astype(x.dtype)


def _project(
  x: jax.Array, weight: jax.Array, bias: jax.Array | None
) -> jax.Array:
  # Two-dimensional products: XLA's CPU backend runs the weight gradient of a
  # three-dimensional one 1.4 times slower.
  flat = x.reshape(-1, x.shape[-1]) @ weight
  if bias is not None:
    flat = flat + bias[None]
  return flat.reshape(*x.shape[:-1], weight.shape[-1])


def _heads(x: jax.Array, num_heads: int) -> jax.Array:
  return x.reshape(*x.shape[:-1], num_heads, -1)
