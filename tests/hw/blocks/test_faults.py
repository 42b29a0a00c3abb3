"""Each block's bench fails on faults put into that block alone: `make blocks` tries all, a test run one each."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("amaranth", reason="Amaranth is not installed: pip install npukit[rtl]")


from npukit.fpga.sdram_chip import SdramViolation

from tests.fpga import test_board, test_sdram
from tests.hw.blocks import test_addresses, test_control, test_engines, test_registers
from tests.proofs.harness import Fault, faulty

_USERS = ("npukit.hw.", "npukit.fpga.", "tests.hw.blocks.", "tests.fpga.")
"""Modules in which a block with a fault takes the block's place."""
_SEEDS = ("1", "2", "3", "4")
"""Of runs in one of which a fault must show."""

BLOCKS: dict[str, tuple[Callable[[str], Any], tuple[Fault, ...]]] = {
    "load": (
        lambda seed: test_engines.run_load(seed, 30),
        (
            Fault("border right", "hw.load", "(column > last_word)", "(column >= last_word)"),
            Fault("first word's lane", "hw.load", "Mux(first_word, row_start[:bits], lane[:bits])", "lane[:bits]"),
            Fault(
                "frees another bank",
                "hw.load",
                "Mux(frees_act, 1 << address.bank, 0)",
                "Mux(frees_act, 1 << waiting.bank, 0)",
            ),
            Fault(
                "takes a beat that it does not need",
                "hw.load",
                "running & ~border & needs_beat",
                "running & needs_beat",
            ),
        ),
    ),
    "store": (
        lambda seed: test_engines.run_store(seed, 30),
        (
            Fault("strobe stays", "hw.store", "kept_strobe.eq(0)", "kept_strobe.eq(kept_strobe)"),
            Fault("place in the buffer", "hw.store", "stored_at.eq(count - pop)", "stored_at.eq(count)"),
            Fault(
                "ends at the first answer", "hw.store", "self.response & responses.reads.payload.last", "self.response"
            ),
            Fault(
                "a beat before it is taken",
                "hw.store",
                "with m.If(sent):\n            m.d.sync += beats_sent",
                "with m.If(self.beats.valid):\n            m.d.sync += beats_sent",
            ),
        ),
    ),
    "matrix": (
        lambda seed: test_engines.run_matrix(seed, 12),
        (
            Fault("swaps early", "hw.matrix", 'step_first, READ_LATENCY, "swap")', 'step_first, 1, "swap")'),
            Fault("accumulates from 0", "hw.matrix", "reduction_first & ~run.accumulate", "reduction_first"),
            Fault("a tile early", "hw.matrix", "rows_end.eq(rows_left <= 2)", "rows_end.eq(rows_left <= 3)"),
            Fault(
                "weights without a ring",
                "hw.matrix",
                "ring(front.wgt_offset, wgt_offset, front.wgt_wrap)",
                "wgt_offset",
            ),
        ),
    ),
    "vector": (
        lambda seed: test_engines.run_vector(seed, 20),
        (
            Fault(
                "another bank's word",
                "hw.vector",
                "result.address.bank.eq(run.out_bank)",
                "result.address.bank.eq(self.instructions.payload.out_bank)",
            ),
            Fault(
                "blocks are not counted",
                "hw.vector",
                "run_blocks.eq(blocks_left != 1)",
                "run_blocks.eq(blocks_left > 2)",
            ),
            Fault("two sources at once", "hw.vector_stream", "second = late if", "second = 1 if"),
            Fault("a set let go early", "hw.vector_loader", "parameter_hold - 1", "parameter_hold - 3"),
            Fault(
                "a window's newest word is another",
                "hw.vector_windows",
                "newest.eq(state.first_slot + state.fresh - 1)",
                "newest.eq(state.first_slot + state.fresh)",
            ),
        ),
    ),
    "queue": (
        test_control.run_queue,
        (
            Fault("one place less", "hw.queue", "depth=self.depth)", "depth=max(1, self.depth - 1))"),
            Fault("writes though full", "hw.queue", "self.writes.ready.eq(fifo.w_rdy)", "self.writes.ready.eq(1)"),
            Fault("reads though empty", "hw.queue", "self.reads.valid.eq(fifo.r_rdy)", "self.reads.valid.eq(1)"),
        ),
    ),
    "issue": (
        test_control.run_issue,
        (
            Fault("drain ignored", "hw.issue", " & (~oldest.drain | (in_flight == 0))", ""),
            Fault(
                "any token will do",
                "hw.issue",
                "((oldest.wait & ~self.there) == 0)",
                "((oldest.wait & self.there) != 0)",
            ),
            Fault("idle too soon", "hw.issue", "(in_flight == 0) & ~queue.reads.valid", "~queue.reads.valid"),
        ),
    ),
    "tokens": (
        test_control.run_tokens,
        (
            Fault("lost where both meet", "hw.tokens", "tokens + more - fewer", "tokens + (more & ~fewer) - fewer"),
            Fault("seven bits", "hw.tokens", "Signal(range(TOKEN_LIMIT + 1), ", "Signal(range(TOKEN_LIMIT // 2 + 1), "),
            Fault("overflow early", "hw.tokens", "(tokens == TOKEN_LIMIT)", "(tokens == TOKEN_LIMIT - 1)"),
        ),
    ),
    "ports": (
        test_control.run_ports,
        (
            Fault("no precedence", "hw.ports", "allowed & ~Cat(*before).any()", "allowed"),
            Fault("one holder", "hw.ports", "Signal(range(most + 1), ", "Signal(1, "),
            Fault("the owner stays", "hw.ports", "m.d.sync += owners[k].eq(engine)", "m.d.sync += owners[k].eq(0)"),
        ),
    ),
    "fetch": (
        test_control.run_fetch,
        (
            Fault("no credit", "hw.fetch", "there + wanted <= capacity)", "there + wanted <= capacity + 4)"),
            Fault("before it arrived", "hw.fetch", "(there != 0)", "(held != 0)"),
            Fault("not the last", "hw.fetch", "final.eq(rest == 1)", "final.eq(rest == 2)"),
        ),
    ),
    "loops": (
        test_addresses.run_loops,
        (
            Fault("inner loops go on", "hw.loops", "for one in base[level:]]", "for one in base[level : level + 1]]"),
            Fault("inner start", "hw.loops", "self.at_start[inner].eq(1)", "self.at_start[inner].eq(0)"),
            Fault("noted late", "hw.loops", "with m.If(self.keep):", "with m.If(self.keep & ~self.step):"),
        ),
    ),
    "bursts": (
        test_addresses.run_bursts,
        (
            Fault("crosses a page", "hw.bursts", "in_page & (next_left", "(next_left"),
            Fault(
                "longer than allowed",
                "hw.bursts",
                "to_longest = longest - following[:bus_bits]",
                "to_longest = longest",
            ),
            Fault("a plane begins at the last one's row", "hw.bursts", "Mux(last_row, moved, plane_start)", "moved"),
        ),
    ),
    "memory": (
        test_addresses.run_memory,
        (
            Fault("another bank", "hw.memory", "(place.bank == bank)", "(place.bank[:1] == bank % 2)"),
            Fault("does not stay", "hw.memory", "with m.If(valid):", "with m.If(1):"),
            Fault(
                "no word is outside", "hw.memory", "(address.offset >= self._depth)", "(address.offset > self._depth)"
            ),
        ),
    ),
    "registers": (
        test_registers.run_registers,
        (
            Fault("strobe of another byte", "hw.registers", "self.write.strobe[byte]", "self.write.strobe[0]"),
            Fault("writes while busy", "hw.registers", "(~self.busy | control.reset, [one", "(1, [one"),
            Fault("an event of another bit", "hw.registers", '"INTERRUPT_STATUS")[place]', '"INTERRUPT_STATUS")[0]'),
            Fault("ones that are kept", "hw.registers", "mine & ~written if", "mine & written if"),
            Fault(
                "starts with a reset",
                "hw.registers",
                "control.start & ~control.reset & ~self.busy",
                "control.start & ~self.busy",
            ),
            Fault("a counter's other half", "hw.registers", "word_select(high, 32)", "word_select(~high, 32)"),
            Fault("an answer does not wait", "hw.registers", "bus.bvalid & bus.bready", "bus.bvalid"),
        ),
    ),
    "host link": (
        test_board.run_link,
        (
            Fault("samples at the edge", "fpga.uart", "self._divisor + self._divisor // 2 - 1", "self._divisor - 1"),
            Fault("the next word's address", "fpga.link", "request.address + 4)", "request.address + 8)"),
            Fault("bytes of a word", "fpga.frames", "Cat(word[8:], byte)", "Cat(byte, word[:24])"),
            Fault("any CRC", "fpga.frames", "(crc.value != CRC_RESIDUE)", "(crc.value == 0)"),
            Fault("a WRITE twice", "fpga.link", "repeats & (written == request.sequence)", "0"),
            Fault("any session", "fpga.link", "(request.session != session)", "0"),
            Fault("escapes without end", "fpga.frames", "damaged.eq(damaged | escaped)", "damaged.eq(damaged)"),
            Fault("a refused write is not told", "fpga.link", "Mux(bus.bresp[1], Status.REFUSED, status)", "status"),
        ),
    ),
    "memory arbiter": (
        lambda seed: test_sdram.run_shared(seed, 4),
        (
            Fault(
                "an address does not stay",
                "fpga.interconnect",
                'Mux(holds, held, host_valid := of[host]["valid"])',
                '(host_valid := of[host]["valid"])',
            ),
            Fault("whose words", "fpga.interconnect", "memory.rvalid & (memory.rid == number)", "memory.rvalid"),
            Fault("whose data", "fpga.interconnect", "Mux(whose, host.wvalid, npu.wvalid)", "npu.wvalid"),
        ),
    ),
    "SDRAM controller": (
        lambda seed: test_sdram.run_one(seed, 4, 60, 0.8, 60.0),
        (
            Fault(
                "closes rows early",
                "fpga.sdram",
                "open_for.begin(max(times.row_active, times.row_cycle - times.precharge) - 1)",
                "open_for.begin(0)",
            ),
            Fault(
                "reads an open row early",
                "fpga.sdram",
                "wait.begin(activate - 1)",
                "wait.begin(0)",
            ),
            Fault(
                "decides by the row of the beat before",
                "fpga.sdram",
                "self.settled.eq(valid & ~(self.take & last))",
                "self.settled.eq(bus.awvalid | bus.arvalid | (valid & ~(self.take & last)))",
            ),
            Fault("takes words early", "fpga.sdram", 'self._latency + 1, "first"', 'self._latency, "first"'),
            Fault("writes what is masked", "fpga.sdram", "Mux(self.go | going, ~word[16:], 0)", "0"),
        ),
    ),
}


@contextmanager
def put_in(fault: Fault) -> Iterator[None]:
    """The hardware with a fault: whoever makes the block makes the one with it."""
    changed = {one: other for one, other in faulty(fault).items() if isinstance(one, type)}
    users = [module for name, module in sys.modules.items() if name.startswith(_USERS)]
    places = [
        (module, name, one)
        for module in users
        for name, one in vars(module).items()
        if isinstance(one, type) and one in changed
    ]
    for module, name, one in places:
        setattr(module, name, changed[one])
    try:
        yield
    finally:
        for module, name, one in places:
            setattr(module, name, one)


def found(block: str, fault: Fault) -> str | None:
    """How the block's bench sees a fault; None if it does not."""
    run, _ = BLOCKS[block]
    with put_in(fault):
        for seed in _SEEDS:
            try:
                run(seed)
            except (AssertionError, IndexError, ValueError, SdramViolation) as error:
                return str(error).splitlines()[0] if str(error) else type(error).__name__
    return None


@pytest.mark.parametrize("block", BLOCKS)
def test_faults(block: str) -> None:
    faults = BLOCKS[block][1]
    assert len(faults) >= 3
    everything = os.environ.get("ALL_FAULTS")
    for fault in faults if everything else [random.choice(faults)]:
        assert found(block, fault), fault.name
