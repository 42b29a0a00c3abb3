"""`npukit.compile` and `torch.compile(backend="npukit")` of modules of every kind: results, notices and errors."""

import threading
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from npukit.compiler.errors import ModelError  # noqa: E402
from npukit.isa.config import PRESETS, ConfigError  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import npukit  # noqa: E402
from npukit.errors import UsageError  # noqa: E402
from npukit.pytorch.gradients import GradientError  # noqa: E402

CONFIG = "bf16-4x4"


def by_backend(module, *arguments, **options):
    return torch.compile(module, backend="npukit", options={"config": CONFIG, **options})


def by_npukit(module, *arguments, **options):
    return npukit.compile(module, arguments, config=CONFIG, **options)


@pytest.fixture(params=[by_backend, by_npukit], ids=["torch.compile", "npukit.compile"])
def compiled(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def near(got, want, share=0.03):
    """Equal but for what bfloat16 loses, in every tensor."""
    one, other = pytree.tree_flatten(got), pytree.tree_flatten(want)
    assert one[1] == other[1]
    for a, b in zip(one[0], other[0], strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)
        assert float((a - b).abs().max()) <= share * float(b.abs().max())


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 5, 3, padding=1), nn.BatchNorm2d(5)
        self.last = nn.Linear(5 * 16, 6)

    def forward(self, x):
        return self.last(F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1))


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 5)

    def forward(self, x, pair, *, more):
        y = self.one(x) + more["bias"]
        return {"y": y, "list": [F.relu(y), (self.one(pair[0]),)], "number": 3, "same": pair[1]}, None


def test_one_changed_line(compiled):
    module, x = Convolutional().eval(), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        near(compiled(module, x)(x), module(x))


def test_several_inputs_and_nested_results():
    module = Nested().eval()
    arguments = torch.randn(4, 6), (torch.randn(2, 6), torch.randn(3))
    options = {"more": {"bias": torch.randn(5)}}
    with torch.no_grad():
        want = module(*arguments, **options)
        near(by_backend(module)(*arguments, **options), want)
        example = {"x": arguments[0], "pair": arguments[1], **options}
        near(npukit.compile(module, example, config=CONFIG)(*arguments, **options), want)


def test_other_shapes_compile_again_with_one_notice(compiled):
    module = Convolutional().eval()
    run = compiled(module, torch.randn(1, 3, 8, 8))
    with torch.no_grad():
        run(torch.randn(1, 3, 8, 8))
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for batch in (2, 3, 2, 1, 5):
                x = torch.randn(batch, 3, 8, 8)
                near(run(x), module(x))
        notices = [str(one.message) for one in seen if "npukit" in str(one.message)]
        assert len(notices) == 1 and "other shapes or types" in notices[0]


def test_changed_weights_are_seen(compiled):
    module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
    run = compiled(module, x)
    with torch.no_grad():
        near(run(x), module(x))
        for change in (
            lambda: module.conv.weight.mul_(-2),
            lambda: module.norm.running_mean.add_(1),
            lambda: module.load_state_dict(Convolutional().state_dict()),
            lambda: setattr(module.last, "bias", nn.Parameter(torch.randn(6) * 9)),
        ):
            change()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                near(run(x), module(x))


def test_two_modules_of_one_class_keep_their_weights(compiled):
    modules, x = [Convolutional().eval() for _ in range(3)], torch.randn(1, 3, 8, 8)
    runs = [compiled(module, x) for module in modules]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            for run, module in zip(runs, modules, strict=True):
                near(run(x), module(x))
    assert all(npukit.report(run).graphs == 1 for run in runs)


def test_shared_weights(compiled):
    shared = nn.Linear(6, 6)
    module, x = nn.Sequential(shared, nn.Tanh(), shared).eval(), torch.randn(3, 6)
    with torch.no_grad():
        near(compiled(module, x)(x), module(x))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = self.one(x)
        y.mul_(2).add_(self.calls)
        y[0] = 0
        x.sub_(1)
        return y


def test_operators_in_place_and_buffers_that_count(compiled):
    module, other = InPlace().eval(), InPlace().eval()
    other.load_state_dict(module.state_dict())
    run = compiled(module, torch.zeros(4, 6))
    module.calls.zero_()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for calls in (1, 2, 3):
            x = torch.randn(4, 6)
            mine = x.clone()
            near(run(mine), other(x))
            near(mine, x)
            assert float(module.calls) == calls


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        y = self.one(x)
        print("a graph ends here")
        if y.sum() > 0:
            return self.two(y) * 2
        return self.two(-y)


def test_graph_breaks():
    module = Broken().eval()
    run = by_backend(module)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.ones(3, 6)
            near(run(x), module(x))
    report = npukit.report(run)
    assert report.graphs >= 2 and report.offload.macs == report.offload.macs_total > 0


def test_control_flow_by_values_is_refused_by_npukit_compile():
    with pytest.raises(ModelError, match="torch.export refuses Broken: .*torch.compile"):
        by_npukit(Broken().eval(), torch.ones(3, 6))


def test_training_mode_runs_in_pytorch_where_it_must(compiled):
    module, other, x = Convolutional(), Convolutional(), torch.randn(4, 3, 8, 8)
    other.load_state_dict(module.state_dict())
    run = compiled(module, x)
    with torch.no_grad():
        near(run(x), other(x))
        near(run(x), other(x))
        near(module.norm.running_mean, other.norm.running_mean)
        assert int(module.norm.num_batches_tracked) == int(other.norm.num_batches_tracked) == 2
    reasons = " ".join(one.reason for one in npukit.report(run).offload.reasons)
    assert "training mode, with statistics of the batch: call eval()" in reasons
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near(run.eval()(x), other.eval()(x))


def test_dropout_in_training_mode_drops_out(compiled):
    module, x = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5)), torch.randn(4, 6)
    run = compiled(module, x)
    with torch.no_grad():
        one, two = run(x), run(x)
    assert 0.2 < float((one == 0).float().mean()) < 0.8 and not torch.equal(one, two)


def test_gradients_are_refused_when_they_are_wanted(compiled):
    module, x = Convolutional().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(module, x)
    result = run(x)
    near(result.detach(), module(x).detach())
    assert result.requires_grad
    with pytest.raises(GradientError, match="computes no gradients: train the module itself"):
        result.sum().backward()
    with torch.no_grad():
        assert not run(x).requires_grad
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    assert not run(x).requires_grad
    assert run(x.clone().requires_grad_()).requires_grad


def test_inference_mode(compiled):
    module = Convolutional().eval()
    run = compiled(module, torch.randn(1, 3, 8, 8))
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in (1, 2):
            x = torch.randn(batch, 3, 8, 8)
            near(run(x), module(x))


def test_a_module_of_inference_tensors():
    with torch.inference_mode():
        module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
        near(by_backend(module)(x), module(x))
        with pytest.raises(UsageError, match="conv.weight was made in inference mode"):
            by_npukit(module, x)
        with pytest.raises(UsageError, match="changes a buffer that was made in inference mode"):
            by_backend(InPlace().eval())(torch.zeros(4, 6))


@pytest.mark.parametrize("kind", [torch.float16, torch.float64])
def test_other_floats_run_in_pytorch_with_the_reason(compiled, kind):
    module, x = Convolutional().eval().to(kind), torch.randn(1, 3, 8, 8, dtype=kind)
    run = compiled(module, x)
    with torch.no_grad():
        near(run(x), module(x), share=1e-2 if kind == torch.float16 else 1e-12)
    report = npukit.report(run)
    assert report.cycles == 0 and report.offload.macs == 0 < report.offload.macs_total
    assert any("convert the module with .float() or .bfloat16()" in one.reason for one in report.offload.reasons)
    assert "nothing runs on the accelerator" in str(report)


def test_bfloat16_modules(compiled):
    module, x = Convolutional().eval().bfloat16(), torch.randn(1, 3, 8, 8).bfloat16()
    run = compiled(module, x)
    with torch.no_grad():
        near(run(x), module(x))
    assert npukit.report(run).offload.macs == npukit.report(run).offload.macs_total


def test_float_modules_on_an_int8_machine_are_told_what_to_do(compiled):
    module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        run = torch.compile(module, backend="npukit", options={"config": "int8-4x4"})
        near(run(x), module(x), share=1e-5)
    assert "quantise it with npukit.quantize" in npukit.report(run).offload.suggestion


class Mixed(nn.Module):
    """Operators that the machine has not stand between some that it has."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3)
        self.recurrent = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        y = self.two(F.silu(self.norm(self.one(x))))
        return self.recurrent(y.flatten(2).transpose(1, 2))[0], torch.fft.fft(y).real


def test_what_the_machine_has_not_runs_in_pytorch():
    module, x = Mixed().eval(), torch.randn(2, 3, 8, 8)
    run = by_npukit(module, x)
    with torch.no_grad():
        near(run(x), module(x))
    report = npukit.report(run)
    names = {one.op for one in report.offload.reasons}
    assert {"aten.native_group_norm.default", "aten.lstm.input"} <= names and report.parts == 2
    assert 0 < report.offload.macs < report.offload.macs_total  # LSTM's are counted


class Attention(nn.Module):
    def forward(self, q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, mask)


@pytest.mark.parametrize("floating", [False, True])
def test_rows_that_see_nothing_are_pytorchs(floating):
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    whole = torch.rand(1, 1, 6, 6) > 0.4
    whole[..., 0] = True
    part = whole.clone()
    part[0, 0, 3] = False

    def mask(seen):
        return torch.zeros(seen.shape).masked_fill(~seen, float("-inf")) if floating else seen

    module = Attention()
    run = by_npukit(module, q, k, v, mask(whole))
    near(run(q, k, v, mask(whole)), module(q, k, v, mask(whole)))
    assert npukit.report(run).offload.macs == npukit.report(run).offload.macs_total
    with pytest.warns(UserWarning, match="sees nothing at all"):
        near(run(q, k, v, mask(part)), module(q, k, v, mask(part)), share=1e-5)
    near(run(q, k, v, mask(whole)), module(q, k, v, mask(whole)))


def test_finite_masks_beyond_bfloat16():
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    mask = torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)
    mask[2] = torch.finfo(torch.float32).min  # every key counts alike then
    near(by_npukit(Attention(), q, k, v, mask)(q, k, v, mask), Attention()(q, k, v, mask))


@pytest.mark.parametrize("first", [False, True])
def test_the_fast_path_of_encoders(compiled, first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=first, activation="gelu")
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x, hidden = torch.randn(2, 7, 16), torch.zeros(2, 7, dtype=torch.bool)
    hidden[1, 5:] = True
    with torch.no_grad():
        run = torch.compile(module, backend="npukit", options={"config": CONFIG})
        near(run(x, src_key_padding_mask=hidden), module(x, src_key_padding_mask=hidden))
    offload = npukit.report(run).offload
    assert offload.macs == offload.macs_total > 0


def test_functions_and_their_report():
    def function(a, b):
        return torch.relu(a @ b) + 1

    run = torch.compile(function, backend="npukit", options={"config": CONFIG})
    a, b = torch.randn(5, 6), torch.randn(6, 7)
    near(run(a, b), function(a, b))
    assert npukit.report(run).offload.macs == 5 * 6 * 7


def test_the_rtl():
    module, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), torch.randn(1, 3, 5, 5)
    runs = {device: by_npukit(module, x, device=device) for device in ("sim", "rtl")}
    with torch.no_grad():
        assert torch.equal(runs["sim"](x), runs["rtl"](x))
    assert npukit.report(runs["sim"]).cycles == npukit.report(runs["rtl"]).cycles > 0


def test_threads():
    module, xs = Convolutional().eval(), [torch.randn(1, 3, 8, 8) for _ in range(4)]
    run = by_npukit(module, xs[0])
    results: dict = {}

    def work(number):
        with torch.no_grad():
            results[number] = run(xs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    with torch.no_grad():
        for number, x in enumerate(xs):
            near(results[number], module(x))


def test_programs_of_an_export():
    module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
    run = npukit.compile(torch.export.export(module, (x,)), config=CONFIG)
    with torch.no_grad():
        near(run(x), module(x))
    with pytest.raises(UsageError, match="leave example_inputs out"):
        npukit.compile(torch.export.export(module, (x,)), x)


def test_report(compiled):
    module, x = Convolutional().eval(), torch.randn(2, 3, 8, 8)
    run = compiled(module, x)
    with torch.no_grad():
        run(x)
    report = npukit.report(run, megahertz=100)
    assert report.milliseconds == report.cycles / 1e5 and report.graphs == report.parts == 1
    assert report.profile.cycles == sum(layer.cycles for layer in report.profile.layers)
    assert report.offload.macs == 2 * (8 * 8 * 5 * 27 + 80 * 6)
    text = str(report)
    assert "on the accelerator" in text and "conv" in text and "at 100 MHz" in text
    assert report.to_json()["offload"]["macs"] == report.offload.macs


def test_before_a_run_the_report_has_what_programs_take():
    module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
    run = by_npukit(module, x)
    before = npukit.report(run).cycles
    with torch.no_grad():
        run(x)
    assert before == npukit.report(run).cycles > 0


@pytest.mark.parametrize(
    "options, kind, reason",
    [
        ({"config": "int9"}, ConfigError, "int9"),
        ({"device": "gpu"}, UsageError, "the devices are sim, rtl"),
        ({"optimise": 1}, UsageError, "the options are config, device, .*not 'optimise'"),
        ({"optimize": 7}, UsageError, "optimize must be 0, 1 or 2, not 7"),
        ({"min_macs": -1}, UsageError, "min_macs must be a whole number"),
        ({"config": 4}, UsageError, "config must be a preset's name"),
    ],
)
def test_options_that_are_refused(options, kind, reason):
    module, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    with pytest.raises(kind, match=reason):
        npukit.compile(module, x, **options)
    with pytest.raises(Exception, match=reason):
        torch.compile(module, backend="npukit", options=options)(x)


def test_arguments_that_are_refused():
    module, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    with pytest.raises(UsageError, match="example_inputs must be a tensor"):
        npukit.compile(module)
    with pytest.raises(UsageError, match="its configuration is config="):
        npukit.compile(module, x, "int8-4x4")
    with pytest.raises(UsageError, match="nothing of this Linear has been compiled"):
        npukit.report(module)
    with pytest.raises(UsageError, match="megahertz must be above 0, not 0"):
        npukit.report(npukit.compile(module, x), megahertz=0)
    with pytest.raises(Exception, match="no mode 'max-autotune'"):
        torch.compile(module, backend="npukit", mode="max-autotune")(x)


def test_the_default_configuration_follows_the_numbers():
    assert (
        npukit.report(npukit.compile(nn.Linear(4, 4).eval(), torch.randn(2, 4))).profile.config == PRESETS["bf16-16x16"]
    )


class Of(nn.Module):
    """A function of the module and its arguments, with parts."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, value in parts.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *arguments):
        return self.function(self, *arguments)


def eight():
    return nn.Linear(8, 8)


def test_constants_that_are_results_are_the_callers(compiled):
    module, x = (
        Of(lambda s, x: (s.l(x), torch.zeros(4, 8), torch.arange(8) + s.l(x), torch.arange(8)[2:]), l=eight()),
        torch.randn(4, 8),
    )
    run = compiled(module.eval(), x)
    with torch.no_grad():
        for _ in range(2):
            got = run(x)
            near(got, module(x))
            for one in got:
                one.add_(5)


def test_replaced_and_new_parts_are_seen(compiled):
    module, x = (
        Of(lambda s, x: s.act(s.l(x)) * s.b.add_(1), l=nn.Linear(8, 8, bias=False), act=nn.ReLU(), b=torch.ones(8)),
        torch.randn(4, 8),
    )
    module.eval()
    run = compiled(module, x)
    module.b.fill_(1)
    twin = Of(module.function, l=nn.Linear(8, 8, bias=False), act=nn.ReLU(), b=torch.ones(8)).eval()
    twin.load_state_dict(module.state_dict())

    def change(one):
        yield setattr(one, "b", torch.full((8,), 10.0))
        yield setattr(one.l, "bias", nn.Parameter(torch.full((8,), 5.0)))
        yield setattr(one, "act", nn.Tanh())
        yield setattr(one.l, "bias", None)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near(run(x), twin(x))
        for _ in zip(change(module), change(twin), strict=True):
            near(run(x), twin(x))
            near(module.b, twin.b)


@pytest.mark.parametrize(
    "function",
    [
        lambda s, x: ((h := s.l(x)).t(), h.t() @ h, h.view(8, 4), h),
        lambda s, x: (x.view(8, 4), s.l(x)),
        lambda s, x: ((h := s.l(x)).t() @ torch.ones(4, 4), torch.as_strided(h.t(), (4, 8), (8, 1)).double()),
        lambda s, x: ((h := s.l(x).t()) @ s.l.weight.new_ones(4, 4), h.t().reshape(-1).double()),
        lambda s, x: (s.l(x).split(3, 1)[1], s.l(x).unsqueeze(0)),
    ],
)
def test_views_share_memory_and_strides(compiled, function):
    module, x, other = Of(function, l=eight()).eval(), torch.randn(4, 8), torch.randn(4, 8)
    run = compiled(module, x)
    with torch.no_grad():
        for value in (x, other):
            mine, its = value.clone(), value.clone()
            got, want = run(mine), module(its)
            near(got, want)
            for one, two in zip(got, want, strict=True):
                one.mul_(2)
                two.mul_(2)
            near(got, want)
            near(mine, its)


def test_channels_last(compiled):
    module = Of(lambda s, x: (s.c(x), x.reshape(2, -1).double()), c=nn.Conv2d(3, 4, 3)).eval()
    x = torch.randn(2, 3, 6, 6)
    run = compiled(module, x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value in (x, x.to(memory_format=torch.channels_last), x.transpose(2, 3)):
            near(run(value), module(value))


def test_numbers_as_arguments(compiled):
    module, x = Of(lambda s, x, k: s.l(x) * k, l=eight()).eval(), torch.randn(4, 8)
    run = compiled(module, x, 1.5)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in (1.5, 2.5, 3, -2):
            near(run(x, k), module(x, k))


def test_dynamic_shapes():
    module = Convolutional().eval()
    run = torch.compile(module, backend="npukit", dynamic=True, options={"config": CONFIG})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in (2, 3, 1):
            x = torch.randn(batch, 3, 8, 8)
            near(run(x), module(x))


def frozen(s, x):
    with torch.no_grad():
        y = s.l(x)
    return y + s.l(x)


def test_parts_without_gradients(compiled):
    module, x = Of(frozen, l=eight()), torch.randn(4, 8)
    near(compiled(module, x)(x).detach(), module(x).detach())


def test_results_may_be_changed_in_place(compiled):
    module, x = Of(lambda s, x: (s.l(x), x), l=eight()).eval(), torch.randn(4, 8)
    y, same = compiled(module, x)(x)
    want = module(x)[0].detach() + 1
    y += 1
    near(y.detach(), want)
    assert not same.requires_grad


def test_attention_that_stays_is_counted(compiled):
    q = torch.randn(3, 4, 6, 8, dtype=torch.float64)
    for module, x, macs in (
        (Of(lambda s, x: F.scaled_dot_product_attention(x, x, x)), q, 3 * 4 * 6 * 6 * 16),
        (Of(lambda s, x: F.scaled_dot_product_attention(x, x, x)), q[0], 4 * 6 * 6 * 16),
    ):
        run = compiled(module, x)
        near(run(x), module(x), share=1e-9)
        assert npukit.report(run).offload.macs_total == macs


def test_threads_that_compile():
    x, results = torch.randn(4, 8), {}

    def work(number):
        module = Of(lambda s, x: torch.relu(s.l(x)), l=eight()).eval()
        with torch.no_grad():
            results[number] = by_npukit(module, x)(x), module(x)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert len(results) == 4
    for got, want in results.values():
        near(got, want)


def test_what_pytorch_does_not_take_apart_runs_there():
    def function(s, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = s.l(x)
        return y.float() + s.l(x)

    module, x = Of(function, l=eight()).eval(), torch.randn(4, 8)
    run = by_backend(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        near(run(x), module(x))


def test_calls_that_are_refused():
    def function(s, a, b):
        a.add_(1)
        return s.l(b)

    module, a = Of(function, l=eight()).eval(), torch.randn(4, 8)
    run = by_npukit(module, a, torch.randn(4, 8))
    with torch.no_grad(), pytest.raises(UsageError, match="two arguments share memory"):
        run(a, a)
    plain = by_npukit(eight().eval(), a)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UsageError, match="within torch.autocast"):
        plain(a)
    with pytest.raises(UsageError, match="function is a function: npukit.compile takes modules"):
        npukit.compile(function, (a, a))


def test_copies():
    import copy

    module, x = Convolutional().eval(), torch.randn(1, 3, 8, 8)
    run = by_npukit(module, x)
    twin = copy.deepcopy(run)
    with torch.no_grad():
        twin.module.conv.weight.mul_(2)
        near(run(x), module(x))
        near(twin(x), twin.module(x))
