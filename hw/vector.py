"""VECTOR: parameters, addresses and control; the datapaths have files of their own."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from npukit.hw.bf16_datapath import Bf16VectorDatapath
from npukit.hw.delay import delay, delay_in_memory
from npukit.hw.engine import engine_members
from npukit.hw.int8_datapath import Int8VectorDatapath
from npukit.hw.layout import instruction_layout
from npukit.hw.loops import LoopNest, ring
from npukit.hw.memory import ReadPort, WritePort, read_port, write_port
from npukit.hw.vector_base import VectorDatapath, is_one_of
from npukit.hw.vector_loader import VectorLoader
from npukit.hw.vector_windows import RowWindows, Sweeps
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import TWO_SOURCE_OPERATIONS, WINDOW_OPERATIONS, Memory, Operation, Vector
from npukit.isa.timing import Timing

__all__ = ["VectorEngine"]

_WHOLE_WORD = (Operation.COPY, Operation.CONVERT, Operation.FILL)


class VectorEngine(wiring.Component):
    """Streams words of ACT and ACC through the datapath, one pass a cycle.

    Members: those of every engine, and its memory ports. `start_<memory>_read`, `start_<memory>_write`: bank
    masks of ports that the start asks for; `free_<memory>_read` and `end_<memory>_write`: masks of those that
    it lets go.
    """

    a: ReadPort
    b: ReadPort
    acc: ReadPort
    par: ReadPort
    act_out: WritePort
    acc_out: WritePort

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        masks = {}
        for memory in ("act", "acc"):
            masks |= {
                f"start_{memory}_read": Out(16),
                f"start_{memory}_write": Out(16),
                f"free_{memory}_read": Out(16),
                f"end_{memory}_write": Out(16),
            }
        super().__init__(
            {
                **engine_members(),
                **masks,
                "a": Out(read_port(word)),
                "b": Out(read_port(word)),
                "acc": Out(read_port(wide)),
                "par": Out(read_port(wide)),
                "act_out": Out(write_port(word)),
                "acc_out": Out(write_port(wide)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        layout = instruction_layout(Vector)
        head, front, run = layout(self.head), Signal(layout), Signal(layout)
        waiting = Signal()
        make_datapath = Int8VectorDatapath if config.dtype == "int8" else Bf16VectorDatapath
        m.submodules.loader = loader = VectorLoader(config)
        m.submodules.datapath = datapath = make_datapath(config)

        streaming, block_done, stream_done = Signal(), Signal(), Signal()
        run_blocks = Signal()
        """The running instruction has blocks that have not begun to stream."""
        block_begin = Signal()
        m.d.comb += [
            self.front_free.eq(~waiting & loader.idle_next),
            self.issue.eq(self.head_valid & self.front_free & self.issue_ok),
            self.start_request.eq(
                waiting & ~run_blocks & (~streaming | block_done) & (loader.front_ready | ~loader.front_loads)
            ),
            block_begin.eq(run_blocks & (~streaming | block_done) & (loader.next_ready | ~loader.run_block_loads)),
            loader.head.eq(self.head),
            loader.issue.eq(self.issue),
            loader.start.eq(self.start_grant),
            loader.leave.eq(block_done & (loader.run_block_loads | (loader.run_loads & ~run_blocks))),
            loader.streaming.eq(streaming),
            loader.quiet.eq(~streaming & ~run_blocks),
            loader.par_data.eq(self.par.data),
            self.par.en.eq(loader.par_en),
            self.par.offset.eq(loader.par_offset),
        ]
        with m.If(self.start_grant):
            m.d.sync += [waiting.eq(0), run.eq(front)]
        with m.If(self.issue):
            m.d.sync += [waiting.eq(1), front.eq(head)]
        with m.If(block_done):
            m.d.sync += streaming.eq(0)
        with m.If(block_begin | self.start_grant):
            m.d.sync += streaming.eq(1)
        blocks_left = Signal(9)
        with m.If(block_begin):
            m.d.sync += [blocks_left.eq(blocks_left - 1), run_blocks.eq(blocks_left != 1)]
        with m.If(self.start_grant):
            m.d.sync += [blocks_left.eq(front.blocks), run_blocks.eq(front.blocks != 0)]
        m.d.comb += stream_done.eq(block_done & ~run_blocks)

        self._ports(m, head, stream_done)
        self._stream(m, front, run, streaming, block_done, stream_done, datapath, loader)
        return m

    def _ports(self, m: Module, head, stream_done: Signal) -> None:
        """Masks of an issued instruction wait in registers for its start, as the grant of ports hangs on them."""

        def reads(one, memory: Memory) -> Value:
            a = (one.operation != Operation.FILL) & (one.a_memory == memory)
            mask = Mux(a, 1 << one.a_bank, 0)
            if memory is Memory.ACT:
                two = is_one_of(one.operation, TWO_SOURCE_OPERATIONS)
                mask = mask | Mux(two, 1 << one.b_bank, 0)
            return mask

        for name, memory in (("act", Memory.ACT), ("acc", Memory.ACC)):
            start_read, start_write = getattr(self, f"start_{name}_read"), getattr(self, f"start_{name}_write")
            run_read = Signal.like(start_read, name=f"run_{name}_read")
            with m.If(self.issue):
                m.d.sync += [
                    start_read.eq(reads(head, memory)),
                    start_write.eq(Mux(head.out_memory == memory, 1 << head.out_bank, 0)),
                ]
            with m.If(self.start_grant):
                m.d.sync += run_read.eq(start_read)
            m.d.comb += getattr(self, f"free_{name}_read").eq(Mux(stream_done, run_read, 0))

    def _stream(
        self, m: Module, front, run, streaming: Signal, block_done: Signal, stream_done: Signal,
        datapath: VectorDatapath, loader: VectorLoader,
    ) -> None:  # fmt: skip
        config, timing = self._config, Timing(self._config)
        operation = run.operation
        two, windowed, same_bank = Signal(), Signal(), Signal()
        reads_act, reads_acc = Signal(), Signal()
        turns = Signal()
        """Two sources in one bank and one pass: its words take turns."""
        last_group = Signal(range(max(2, config.array)))
        # passes over the lanes of a word
        lane_group, group_last, late = Signal.like(last_group), Signal(), Signal()
        """With `late`, the second of a word's turns."""
        two_next, same_next = is_one_of(front.operation, TWO_SOURCE_OPERATIONS), front.a_bank == front.b_bank
        passes = Mux(two_next, timing.two_source_passes - 1, timing.requantise_passes - 1)
        last_next = Mux(is_one_of(front.operation, _WHOLE_WORD), 0, passes)
        fills = front.operation == Operation.FILL
        with m.If(self.start_grant):  # in registers, as the end of each word hangs on them
            m.d.sync += [
                two.eq(two_next),
                windowed.eq(is_one_of(front.operation, WINDOW_OPERATIONS)),
                same_bank.eq(same_next),
                turns.eq(two_next & same_next & int(timing.two_source_passes == 1)),
                last_group.eq(last_next),
                reads_act.eq((front.a_memory == Memory.ACT) & ~fills),
                reads_acc.eq((front.a_memory == Memory.ACC) & ~fills),
            ]

        # results: one step a word, but where many grow together
        swept = config.dtype == "bf16"
        place = LoopNest(3, 3).build(m, returns=swept)
        for level, name in enumerate(("blocks", "height", "width")):
            m.d.comb += [place.counts[level].eq(run[name]), place.once[level].eq(front[name] == 0)]
        for track, prefix in enumerate(("a", "b", "out")):
            m.d.comb += place.offsets[track].eq(front[f"{prefix}_offset"])
            for level, name in enumerate(("block", "y", "x")):
                m.d.comb += place.strides[track][level].eq(run[f"{prefix}_stride_{name}"])
        m.d.comb += place.load.eq(self.start_grant)

        reading, passing, last_pass, word_done = Signal(), Signal(), Signal(), Signal()
        window = Sweeps(config) if swept else RowWindows(config)
        window.build(m, front, run, place)
        m.d.comb += [
            window.start.eq(self.start_grant),
            window.streaming.eq(streaming & windowed),
            window.group_first.eq(lane_group == 0),
            window.group_last.eq(group_last),
            reading.eq(streaming & Mux(windowed, window.reading, ~late & (lane_group == 0))),
            passing.eq(streaming & Mux(windowed, window.passing, ~turns | late)),
            last_pass.eq(passing & group_last),
            word_done.eq(last_pass & (~windowed | window.done)),
            place.step.eq(last_pass & (~windowed | window.moves)),
            block_done.eq(word_done & place.at_end[1] & place.at_end[2]),
        ]
        with m.If(streaming & turns):
            m.d.sync += late.eq(~late)
        with m.If(passing):
            following = Mux(group_last, 0, lane_group + 1)
            m.d.sync += [lane_group.eq(following), group_last.eq(following == last_group)]
        with m.If(self.start_grant):
            m.d.sync += [late.eq(0), group_last.eq(last_next == 0)]

        a_address = (place.address[0] + Mux(windowed, window.offset, 0))[:16]
        second = late if timing.two_source_passes == 1 else lane_group == 1
        b_now = streaming & two & Mux(same_bank, second, lane_group == 0)
        a_wrap = Mux(run.a_wrap, run.wrap, 0)
        m.d.comb += [
            self.a.en.eq(reading & reads_act),
            self.a.bank.eq(run.a_bank),
            self.a.offset.eq(ring(run.a_offset, a_address, a_wrap)),
            self.acc.en.eq(reading & reads_acc),
            self.acc.bank.eq(run.a_bank),
            self.acc.offset.eq(self.a.offset),
            self.b.en.eq(b_now),
            self.b.bank.eq(run.b_bank),
            self.b.offset.eq(ring(run.b_offset, place.address[1], Mux(run.b_wrap, run.wrap, 0))),
        ]

        # to the datapath: what this cycle's pass is
        m.d.comb += [getattr(datapath, name).eq(value) for name, value in window.members.items()]
        m.d.comb += [
            datapath.a_data.eq(self.a.data),
            datapath.b_data.eq(self.b.data),
            datapath.acc_data.eq(self.acc.data),
            datapath.operation.eq(operation),
            datapath.from_acc.eq(run.a_memory == Memory.ACC),
            datapath.to_acc.eq(run.out_memory == Memory.ACC),
            datapath.same_bank.eq(same_bank),
            datapath.read.eq(reading),
            datapath.read_b.eq(b_now),
            datapath.read_window.eq(reading & windowed & window.members["read_window"]),
            datapath.lane_group.eq(lane_group),
            datapath.passing.eq(passing),
            datapath.set_index.eq(loader.stream_set),
            datapath.descriptor_index.eq(loader.run_descriptor),
            datapath.write_set.eq(loader.write_set),
            datapath.write_kind.eq(loader.write_kind),
            datapath.write_index.eq(loader.write_index),
            datapath.write_descriptor.eq(loader.write_descriptor),
            datapath.write_data.eq(self.par.data),
            datapath.write_table.eq(loader.write_table),
            datapath.write_table_index.eq(loader.write_table_index),
        ]
        self._writes(m, run, place, word_done, stream_done, datapath)

    def _writes(
        self,
        m: Module,
        run,
        place: LoopNest,
        word_done: Signal,
        stream_done: Signal,
        datapath: VectorDatapath,
    ) -> None:
        latency = Timing(self._config).vector_latency
        offset = ring(run.out_offset, place.address[2], Mux(run.out_wrap, run.wrap, 0))
        valid = delay(m, word_done, latency, "write_valid")
        last = delay(m, stream_done, latency, "write_last")
        payload = Cat(offset, run.out_bank, run.out_memory == Memory.ACC, run.signal)
        late = delay_in_memory(m, payload, latency, "write_payload")
        offset, bank, to_acc, signal = late[:15], late[15:19], late[19], late[20:24]
        m.d.comb += [self.end.eq(last), self.end_signal.eq(signal)]
        for port, mine, mask in (
            (self.act_out, ~to_acc, self.end_act_write),
            (self.acc_out, to_acc, self.end_acc_write),
        ):
            m.d.comb += [
                port.en.eq(valid & mine),
                port.bank.eq(bank),
                port.offset.eq(offset),
                mask.eq(Mux(last & mine, 1 << bank, 0)),
            ]
        m.d.comb += [self.act_out.data.eq(datapath.act_result), self.acc_out.data.eq(datapath.acc_result)]
