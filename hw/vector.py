"""VECTOR: its instructions, from issue to end; parameters, stream and datapaths have files of their own."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out
from npukit.hw.bf16_datapath import Bf16VectorDatapath
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.engine import engine_members
from npukit.hw.int8_datapath import Int8VectorDatapath
from npukit.hw.memory import WordAddress, read_port, write_port
from npukit.hw.ports import port_masks
from npukit.hw.vector_base import VectorDatapath, is_one_of
from npukit.hw.vector_loader import VectorLoader
from npukit.hw.vector_stream import VectorStream
from npukit.isa.config import NpuConfig
from npukit.isa.formats import FLOATING, INTEGER
from npukit.isa.instructions import ENGINES, TWO_SOURCE_OPERATIONS, Memory, Operation, Vector
from npukit.isa.timing import Timing

__all__ = ["VectorEngine"]

_DATAPATHS = {INTEGER: Int8VectorDatapath, FLOATING: Bf16VectorDatapath}


class _Result(data.Struct):
    """What goes beside a result through the datapath."""

    address: WordAddress
    memory: Memory
    signal: len(ENGINES)
    """Tokens that its instruction gives."""


class VectorEngine(wiring.Component):
    """Streams words of ACT and ACC through the datapath, one pass a cycle.

    Members: those of every engine (`hw/engine.py`), and its memory ports.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        super().__init__(
            {
                **engine_members(config, Vector),
                "a": Out(read_port(word)),
                "b": Out(read_port(word)),
                "acc": Out(read_port(wide)),
                "par": Out(read_port(wide)),
                "act_out": Out(write_port(word)),
                "acc_out": Out(write_port(wide)),
                "wgt_out": Out(write_port(word)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        head, issue, start = self.instructions.payload, Signal(), Signal()
        front, run = Signal.like(head), Signal.like(head)
        waiting, streaming, run_blocks = Signal(), Signal(), Signal()
        """The front instruction has not started; a block of the running one streams; more of its blocks are to come."""
        blocks_left = Signal(9)
        block_begin, stream_done, free = Signal(), Signal(), Signal()
        m.submodules.loader = loader = VectorLoader(config)
        m.submodules.stream = words = VectorStream(config)
        m.submodules.datapath = datapath = _DATAPATHS[config.datapath](config)
        m.d.comb += [
            self.instructions.ready.eq(~waiting & loader.idle_next),
            issue.eq(self.instructions.valid & self.instructions.ready),
            free.eq(~streaming | words.block_done),
            self.ports.valid.eq(waiting & ~run_blocks & free & (loader.front_ready | ~loader.front_loads)),
            start.eq(self.ports.valid & self.ports.ready),
            block_begin.eq(run_blocks & free & (loader.next_ready | ~loader.run_block_loads)),
            stream_done.eq(words.block_done & ~run_blocks),
            loader.issued.valid.eq(issue),
            loader.issued.payload.eq(head),
            loader.start.eq(start),
            loader.leave.eq(words.block_done & (loader.run_block_loads | (loader.run_loads & ~run_blocks))),
            loader.streaming.eq(streaming),
            loader.quiet.eq(~streaming & ~run_blocks),
            words.start.eq(start),
            words.front.eq(front),
            words.run.eq(run),
            words.streaming.eq(streaming),
            words.set_index.eq(loader.stream_set),
            words.descriptor_index.eq(loader.run_descriptor),
            datapath.control.eq(words.control),
            datapath.a.eq(self.a.data),
            datapath.b.eq(self.b.data),
            datapath.acc.eq(self.acc.data),
        ]
        wiring.connect(m, loader.parameters, datapath.parameters)
        wiring.connect(m, loader.par, wiring.flipped(self.par))
        for port, addresses in ((self.a, words.a), (self.b, words.b), (self.acc, words.acc)):
            wiring.connect(m, addresses, wiring.flipped(port.addresses))

        with m.If(words.block_done):
            m.d.sync += streaming.eq(0)
        with m.If(block_begin):
            m.d.sync += [streaming.eq(1), blocks_left.eq(blocks_left - 1), run_blocks.eq(blocks_left != 1)]
        with m.If(start):
            m.d.sync += [
                waiting.eq(0),
                run.eq(front),
                streaming.eq(1),
                blocks_left.eq(front.blocks),
                run_blocks.eq(front.blocks != 0),
            ]
        with m.If(issue):
            m.d.sync += [waiting.eq(1), front.eq(head)]

        self._needed_ports(m, head, issue, start, stream_done)
        self._write(m, run, words, stream_done, datapath)
        return m

    def _needed_ports(self, m: Module, head, issue: Signal, start: Signal, stream_done: Signal) -> None:
        """Masks of an issued instruction wait in registers for its start, as the grant of ports hangs on them."""
        wants, run_reads = self.ports.payload, Signal(port_masks(self._config))
        two = is_one_of(head.operation, TWO_SOURCE_OPERATIONS)
        reads = head.operation != Operation.FILL

        def mask(condition, bank):
            return Mux(condition, 1 << bank, 0)

        with m.If(issue):
            m.d.sync += [
                wants.act_read.eq(mask(reads & (head.a_memory == Memory.ACT), head.a_bank) | mask(two, head.b_bank)),
                wants.acc_read.eq(mask(reads & (head.a_memory == Memory.ACC), head.a_bank)),
                wants.act_write.eq(mask(head.out_memory == Memory.ACT, head.out_bank)),
                wants.acc_write.eq(mask(head.out_memory == Memory.ACC, head.out_bank)),
                wants.wgt_write.eq(head.out_memory == Memory.WGT),
            ]
        with m.If(start):
            m.d.sync += [run_reads.act_read.eq(wants.act_read), run_reads.acc_read.eq(wants.acc_read)]
        m.d.comb += [
            self.released.act_read.eq(Mux(stream_done, run_reads.act_read, 0)),
            self.released.acc_read.eq(Mux(stream_done, run_reads.acc_read, 0)),
        ]

    def _write(
        self, m: Module, run, words: VectorStream, stream_done: Signal, datapath: VectorDatapath
    ) -> None:  # fmt: skip
        latency = Timing(self._config).vector_latency
        result = Signal(_Result)
        m.d.comb += [
            result.address.offset.eq(words.results.payload),
            result.address.bank.eq(run.out_bank),
            result.memory.eq(run.out_memory),
            result.signal.eq(run.signal),
        ]
        valid = delay(m, words.results.valid, latency, "write_valid")
        last = delay(m, stream_done, latency, "write_last")
        late = _Result(delay_in_memory(m, result.as_value(), latency, "write_result"))
        m.d.comb += [self.ends.valid.eq(last), self.ends.payload.eq(late.signal)]
        for port, memory, word, released in (
            (self.act_out, Memory.ACT, datapath.act_result, self.released.act_write),
            (self.acc_out, Memory.ACC, datapath.acc_result, self.released.acc_write),
            (self.wgt_out, Memory.WGT, datapath.act_result, self.released.wgt_write),
        ):
            mine = late.memory == memory
            m.d.comb += [
                port.valid.eq(valid & mine),
                port.payload.address.eq(late.address),
                port.payload.data.eq(word),
                released.eq(Mux(last & mine, 1 << late.address.bank, 0)),
            ]
