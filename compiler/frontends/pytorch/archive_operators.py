"""The operators that a file may call: what models for inference consist of, and nothing that is able to do more.

ATen has three thousand operators. Among them are such as map or create files, as `from_file`, such as take memory by
numbers that a file gives, and such as read what they are given without a look at its size. What is not named here is
not called, not even to find out the shape of its result.
"""

import re

import torch
from npukit.compiler.frontends.pytorch.operators import OPERATORS

__all__ = ["CALLED_ONCE_PER_ELEMENT", "SIZE_OPERATORS", "is_supported"]

SIZE_OPERATORS = frozenset(
    {
        *(
            f"_operator.{name}"
            for name in "add sub mul floordiv truediv mod neg pos pow eq ne lt le gt ge and_".split()
        ),
        *(f"torch.sym_{name}" for name in ("float", "int", "max", "min", "not", "ite")),
        "math.trunc",
    }
)
"""Of Python, on sizes."""

CALLED_ONCE_PER_ELEMENT = {
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), 1 << 12),
    **dict.fromkeys(
        "chunk hsplit split split_with_sizes tensor_split unbind unsafe_chunk unsafe_split vsplit".split(), 1 << 16
    ),
}  # fmt: skip
"""Operators that PyTorch takes a step of for each element of a dimension, and how large such a dimension may be."""

_NAMED = frozenset(
    """
    alias atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to cat channel_shuffle chunk clone
    column_stack concat concatenate constant_pad_nd contiguous copy detach diag diag_embed diagonal diff dstack expand
    expand_as fill flatten flip fliplr flipud gather hsplit hstack im2col index index_add index_copy index_fill
    index_put index_select lift_fresh lift_fresh_copy mT masked_fill masked_scatter matrix_H meshgrid moveaxis movedim
    narrow numpy_T pad permute pixel_shuffle pixel_unshuffle ravel repeat repeat_interleave.self_int reshape
    reshape_as roll rot90 row_stack scatter scatter_add select select_scatter slice slice_scatter split
    split_with_sizes squeeze stack swapaxes swapdims t take_along_dim tensor_split tile transpose tril triu unbind
    unflatten unfold unsafe_chunk unsafe_split unsqueeze view view_as view_as_complex view_as_real vsplit vstack where
    zero _unsafe_index _unsafe_view _reshape_alias

    arange empty empty_like empty_permuted eye full full_like linspace new_empty new_full new_ones new_zeros ones
    ones_like scalar_tensor tril_indices triu_indices zeros zeros_like

    to type_as _to_copy

    all amax amin aminmax any argmax argmin argsort count_nonzero cumprod cumsum frobenius_norm linalg_norm
    linalg_vector_norm logcumsumexp logsumexp max mean min nansum norm prod sort std std_mean sum topk var var_mean

    absolute addbmm addmm addmv baddbmm bilinear bmm chain_matmul clip cosine_similarity cross divide dot einsum
    floor_divide ger greater greater_equal inner kron less less_equal linalg_cross linalg_matmul linear matmul mm
    multiply mv negative not_equal outer pairwise_distance polar square subtract tensordot true_divide vdot
    float_power isfinite isinf isnan isreal __and__ __or__ __xor__ logsigmoid log_sigmoid one_hot bucketize searchsorted
    isin

    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution

    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices

    affine_grid_generator grid_sampler grid_sampler_2d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa

    celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax mish prelu relu6 rrelu selu silu
    softmax softplus softshrink softsign tanhshrink threshold _log_softmax _prelu_kernel _safe_softmax _softmax

    alpha_dropout batch_norm dropout feature_alpha_dropout feature_dropout group_norm instance_norm layer_norm
    native_batch_norm native_dropout native_group_norm native_layer_norm rms_norm _batch_norm_impl_index
    _fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _weight_norm _weight_norm_interface

    embedding gru gru_cell lstm lstm_cell rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell
    scaled_dot_product_attention _native_multi_head_attention _transformer_encoder_layer_fwd

    fake_quantize_per_channel_affine fake_quantize_per_tensor_affine

    item numel sym_numel sym_size sym_storage_offset sym_stride sym_constrain_range sym_constrain_range_for_size
    sym_is_contiguous _assert_async _assert_scalar _assert_tensor_metadata _local_scalar_dense
    """.split()
)
"""Without overloads any of them; those that work in place, with `_` behind their name, as those that do not."""

_TARGET = re.compile(
    r"torch\.ops\.(aten|quantized_decomposed)\.([a-zA-Z]\w*|_[a-z]\w*|__(?:and|or|xor)__)\.([a-zA-Z]\w*)"
)


def is_supported(target: str) -> bool:
    """Whether a file may call an operator, by the name that files give it."""
    if target in SIZE_OPERATORS:
        return True
    found = _TARGET.fullmatch(target)
    if found is None:
        return False
    namespace, name, overload = found.groups()
    if f"{namespace}.{name}.{overload}" in OPERATORS:
        return True
    plain = name if name.endswith("__") else name.removesuffix("_")
    if (
        namespace != "aten"
        or overload in ("out", "Tensor_out")
        or not torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    ):
        return False
    return plain in _NAMED or f"{plain}.{overload}" in _NAMED or _is_pointwise(name, overload)


def _is_pointwise(name: str, overload: str) -> bool:
    """Whether an operator makes each element of the elements in its place."""
    operator = getattr(getattr(torch.ops.aten, name), overload, None)
    return isinstance(operator, torch._ops.OpOverload) and torch.Tag.pointwise in operator.tags
