"""Wrong lines in hand-tuned kernels and samplers: name, file, right, wrong, tests."""

REDUCTIONS = "tests/kernels/test_short_reductions.py"
MATMUL = "tests/kernels/test_matmul.py"
LINEAR = "tests/kernels/test_linear.py"
GRU = "tests/kernels/test_gru.py"
ATTENTION = "tests/kernels/test_attention.py"
CATEGORICAL = "tests/kernels/test_categorical.py"
GAMMA = "tests/kernels/test_gamma.py"
FREQUENCIES = "tests/policies/test_action_distributions.py -k often"
SAMPLES = "tests/policies/test_continuous_actions.py -k half"

KERNELS = [
    (
        "kernels: folds from the end",
        "kernels/short_reductions.py",
        "for i in range(length):\n",
        "for i in reversed(range(length)):\n",
        REDUCTIONS,
    ),
    (
        "kernels: a short minimum is a maximum",
        "kernels/short_reductions.py",
        "functools.reduce(jnp.minimum",
        "functools.reduce(jnp.maximum",
        REDUCTIONS,
    ),
    (
        "kernels: blocks of rows are averaged",
        "kernels/matmul.py",
        "grad.reshape(-1, block, outputs)).sum(0)",
        "grad.reshape(-1, block, outputs)).mean(0)",
        MATMUL,
    ),
    (
        "kernels: transposed products' gradient of W",
        "kernels/matmul.py",
        "lax.optimization_barrier(of_kernel).T",
        "lax.optimization_barrier(2 * of_kernel).T",
        MATMUL,
    ),
    (
        "kernels: mixed products' gradient of x",
        "kernels/matmul.py",
        "return grad @ kernel.astype(x.dtype).T, of_kernel\n",
        "return grad @ kernel.astype(x.dtype).T * 1.1, of_kernel\n",
        MATMUL,
    ),
    (
        "kernels: the last layer without its bias",
        "kernels/linear.py",
        "y = y + bias[:, None]",
        "y = y + 0 * bias[:, None]",
        LINEAR,
    ),
    (
        "kernels: a norm's shift is not folded",
        "kernels/linear.py",
        "(shift[:, None] * kernel).sum(0) + bias",
        "bias",
        LINEAR,
    ),
    (
        "kernels: layers side by side swap their biases",
        "kernels/linear.py",
        "jnp.concatenate(biases))",
        "jnp.concatenate(biases)[::-1])",
        LINEAR,
    ),
    (
        "kernels: the slope of GELU without its density",
        "kernels/gelu.py",
        "below + x * density",
        "below",
        "tests/kernels/test_gelu.py",
    ),
    (
        "kernels: layer norm's gradient without its second term",
        "kernels/layer_norm.py",
        "- y * along",
        "- 0 * along",
        "tests/kernels/test_layer_norm.py",
    ),
    (
        "kernels: a GRU's reset gate without its slope",
        "kernels/gru.py",
        "of_n * hn * r * (1.0 - r)",
        "of_n * hn * r",
        GRU,
    ),
    (
        "kernels: a GRU's gradient passes the start of an episode",
        "kernels/gru.py",
        "return _reset(of_h, keep), (of_input",
        "return of_h, (of_input",
        GRU,
    ),
    (
        "kernels: agents see those after them",
        "kernels/attention.py",
        "if causal else jnp.ones((n, n), bool)",
        "if not causal else jnp.ones((n, n), bool)",
        ATTENTION,
    ),
    (
        "kernels: cached keys of the next agent count",
        "kernels/attention.py",
        "<= i)[None]",
        "<= i + 1)[None]",
        ATTENTION,
    ),
    (
        "kernels: a table's rows count once",
        "kernels/attention.py",
        "seen + jnp.log(count)",
        "seen",
        ATTENTION,
    ),
    (
        "kernels: the entropy's gradient",
        "kernels/categorical.py",
        "of_entropy * p * (log_p + entropy[None])",
        "of_entropy * p * log_p",
        CATEGORICAL,
    ),
    (
        "kernels: illegal choices",
        "kernels/categorical.py",
        "jnp.where(mask.reshape(-1, mask.shape[-1]).T, transposed, MASKED)",
        "jnp.where(mask.reshape(-1, mask.shape[-1]).T, transposed, 0.0)",
        CATEGORICAL,
    ),
    (
        "kernels: samples that are biased by a thousandth",
        "kernels/categorical.py",
        "(point >= edge).astype(jnp.int32)",
        "(point >= edge + 1e-3 * below[-1]).astype(jnp.int32)",
        FREQUENCIES,
    ),
    (
        "kernels: a Gaussian off by a hundredth",
        "policies/continuous_actions.py",
        "return logits + _spread(scale, logits) * noise",
        "return logits + _spread(scale, logits) * (noise + 0.01)",
        SAMPLES,
    ),
    (
        "kernels: Stirling's last term",
        "kernels/gamma.py",
        "-691 / 360360",
        "691 / 360360",
        GAMMA,
    ),
    (
        "kernels: the recurrence of ψ",
        "kernels/gamma.py",
        "(2 * z + 5)",
        "(2 * z + 4.999)",
        GAMMA,
    ),
    (
        "kernels: Gamma proposals are accepted too often",
        "kernels/gamma.py",
        "- normal**2 / 2",
        "- normal**2",
        GAMMA,
    ),
    (
        "kernels: rows are permuted once more",
        "kernels/permutation.py",
        "dtype=x.dtype), -1, -2)",
        "dtype=x.dtype), -1, -1)",
        "tests/kernels/test_permutation.py",
    ),
]
