"""All of the accelerator but its registers: FETCH, the engines, their memories, and the bus."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import axi4_signature, connect_channels
from npukit.hw.bus import ReadChannels, WriteChannels
from npukit.hw.counters import Counters
from npukit.hw.errors import ErrorLog, ErrorSource, Whose
from npukit.hw.fetch import FetchUnit
from npukit.hw.issue import IssueQueue
from npukit.hw.load import LoadEngine
from npukit.hw.matrix import MatrixEngine
from npukit.hw.memory import BankedMemory
from npukit.hw.ports import PortOwners
from npukit.hw.registers import bits_layout
from npukit.hw.store import StoreEngine
from npukit.hw.tokens import TokenCounters
from npukit.hw.vector import VectorEngine
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, Engine, Load, Matrix, Store, Vector
from npukit.isa.registers import COUNTERS, ErrorCause

__all__ = ["ENGINE_OF", "Machine"]

ENGINE_OF = {
    Engine.LOAD: (LoadEngine, Load),
    Engine.MATRIX: (MatrixEngine, Matrix),
    Engine.VECTOR: (VectorEngine, Vector),
    Engine.STORE: (StoreEngine, Store),
}
"""Engine -> its component, and the instructions that it executes."""
_PAGE_BITS = 12
"""Program and base lie at multiples of 4 KiB."""


class Machine(wiring.Component):
    """All but the registers; the reset of the core clears it.

    Members: `start` with what the registers hold, which must not change until `running` falls; `abort`: end the program
    as after an error; `quiet`: no burst is outstanding; `ended`: strobe, a program has ended or was refused.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        count = len(ENGINES)
        super().__init__(
            {
                "m_axi": Out(axi4_signature(config.bus_bytes)),
                "start": In(1),
                "abort": In(1),
                "quiet": Out(1),
                "hash_matches": In(1),
                "program": In(64),
                "length": In(32),
                "base": In(64),
                "limit": In(64),
                "running": Out(1),
                "finished": Out(1),
                "ended": Out(1),
                "errors": Out(bits_layout(ErrorCause)),
                "error_index": Out(32),
                "trace_queue": Out(count),
                "trace_issue": Out(count),
                "trace_start": Out(count),
                "trace_end": Out(count),
                "trace_done": Out(1),
                "counter_reading": In(1),
                "counter_index": In(range(len(COUNTERS))),
                "counter": Out(64),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config
        m.submodules.fetch = fetch = FetchUnit(config)
        engines = {engine: make(config) for engine, (make, _) in ENGINE_OF.items()}
        for engine, one in engines.items():
            m.submodules[engine.name.lower()] = one

        begin, aligned, stop = Signal(), Signal(), Signal()
        m.d.comb += [
            begin.eq(self.start & ~self.running & ~stop),
            aligned.eq((self.program[:_PAGE_BITS] == 0) & (self.base[:_PAGE_BITS] == 0)),
            fetch.start.eq(begin & self.hash_matches & aligned),
            fetch.length.eq(self.length),
            fetch.stop.eq(stop),
            self.running.eq(fetch.running),
        ]
        m.d.comb += self.ended.eq(fetch.done | (begin & ~fetch.start))
        m.d.sync += self.trace_done.eq(fetch.done)
        with m.If(fetch.done):
            m.d.sync += self.finished.eq(1)
        with m.If(begin):
            m.d.sync += self.finished.eq(~fetch.start)

        overflows = self._order(m, fetch, engines, stop)
        bus_errors = self._bus(m, fetch, engines[Engine.LOAD], engines[Engine.STORE], stop)
        outside = self._memories(m, engines)
        foreign = ErrorSource(ErrorCause.CONFIGURATION), begin & ~self.hash_matches
        unaligned = ErrorSource(ErrorCause.DRAM_ADDRESS), begin & self.hash_matches & ~aligned
        illegal = ErrorSource(ErrorCause.ILLEGAL_INSTRUCTION), fetch.illegal
        missing_end = ErrorSource(ErrorCause.MISSING_END), fetch.missing_end
        of_engines, of_fetch = bus_errors
        # by precedence
        sources = [foreign, unaligned, *outside, *of_engines, *overflows, of_fetch, illegal, missing_end]
        self._errors(m, fetch, begin, stop, of_fetch[1], sources)
        return m

    def _order(self, m: Module, fetch: FetchUnit, engines: dict[Engine, wiring.Component], stop: Signal):
        """Queues, tokens, grants of ports, and counters; token counters that overflow, as errors."""
        m.submodules.tokens = tokens = TokenCounters()
        m.submodules.ports = ports = PortOwners(self._config)
        m.submodules.counters = counters = Counters()
        idle = Signal(len(ENGINES))
        m.d.comb += [tokens.clear.eq(fetch.start), fetch.idle.eq(idle.all())]
        for engine, one in engines.items():
            name = engine.name.lower()
            m.submodules[f"queue_{name}"] = queue = IssueQueue(self._config, ENGINE_OF[engine][1])
            wiring.connect(m, fetch.queues[engine], queue.queued)
            wiring.connect(m, queue.issued, one.instructions)
            wiring.connect(m, one.ports, ports.requests[engine])
            wiring.connect(m, one.ends, tokens.ends[engine])
            granted, active = Signal(name=f"{name}_granted"), Signal(8, name=f"{name}_active")
            """Started in the cycle before; started earlier, with an end that has not been seen. The grant comes late in
            its cycle, too late for a sum."""
            start = one.ports.valid & one.ports.ready
            m.d.comb += [
                queue.there.eq(tokens.there[engine]),
                queue.ended.eq(one.ends.valid),
                queue.stop.eq(stop),
                idle[engine].eq(queue.idle),
                tokens.issues[engine].valid.eq(self.trace_issue[engine]),
                tokens.issues[engine].payload.eq(queue.issued.payload.wait),
                ports.released[engine].eq(one.released),
                self.trace_queue[engine].eq(queue.queued.valid & queue.queued.ready),
                self.trace_issue[engine].eq(queue.issued.valid & queue.issued.ready),
                self.trace_start[engine].eq(start),
                self.trace_end[engine].eq(one.ends.valid),
                counters.events[f"{name}_busy"].eq(start | granted | (active != 0)),
                counters.events[f"{name}_token"].eq(queue.token_wait),
                counters.events[f"{name}_port"].eq(one.ports.valid & ~one.ports.ready),
                counters.events[f"{name}_dram"].eq(one.dram_wait),
            ]
            m.d.sync += [granted.eq(start), active.eq(active + granted - one.ends.valid)]
        beats = engines[Engine.STORE].beats
        m.d.comb += [
            counters.events.store_dram.eq(counters.events.store_busy & ~(beats.valid & beats.ready)),
            counters.events.fetch_stall.eq(fetch.stall),
            counters.events.read_beats.eq(self.m_axi.rvalid & self.m_axi.rready),
            counters.events.write_beats.eq(self.m_axi.wvalid & self.m_axi.wready),
            counters.events.cycles.eq(1),
            counters.clear.eq(fetch.start),
            counters.count.eq(self.running),
            counters.reading.eq(self.counter_reading),
            counters.index.eq(self.counter_index),
            self.counter.eq(counters.value),
        ]
        cause = ErrorCause.TOKEN_OVERFLOW
        return [(ErrorSource(cause, engine, Whose.ENDED), tokens.overflow[engine]) for engine in ENGINES]

    def _bus(self, m: Module, fetch: FetchUnit, load: LoadEngine, store: StoreEngine, stop: Signal):
        """Errors of LOAD and STORE, and of FETCH, each with its signal."""
        m.submodules.reads = reads = ReadChannels(self._config)
        m.submodules.writes = writes = WriteChannels(self._config)
        connect_channels(m, reads.axi, self.m_axi)
        connect_channels(m, writes.axi, self.m_axi)
        wiring.connect(m, fetch.requests, reads.instructions)
        wiring.connect(m, reads.instruction_beats, fetch.beats)
        wiring.connect(m, load.requests, reads.operands)
        wiring.connect(m, reads.operand_beats, load.beats)
        wiring.connect(m, store.requests, writes.requests)
        wiring.connect(m, store.beats, writes.beats)
        m.d.comb += [
            reads.program.eq(self.program),
            reads.base.eq(self.base),
            reads.stop.eq(stop),
            writes.base.eq(self.base),
            writes.stop.eq(stop),
            load.limit.eq(self.limit),
            store.limit.eq(self.limit),
            store.response.eq(writes.response),
            self.quiet.eq(~(reads.outstanding | store.outstanding | writes.held)),
            fetch.quiet.eq(self.quiet),
        ]
        load_outside = load.requests.valid & load.requests.payload.outside
        store_outside = store.requests.valid & store.requests.payload.outside
        of_engines = [
            (ErrorSource(ErrorCause.READ_RESPONSE, Engine.LOAD, Whose.OLDEST), reads.operand_refused),
            (ErrorSource(ErrorCause.WRITE_RESPONSE, Engine.STORE, Whose.OLDEST), writes.refused),
            (ErrorSource(ErrorCause.DRAM_ADDRESS, Engine.LOAD, Whose.ISSUED), load_outside),
            (ErrorSource(ErrorCause.DRAM_ADDRESS, Engine.STORE, Whose.STARTED), store_outside),
        ]
        return of_engines, (ErrorSource(ErrorCause.READ_RESPONSE), reads.instruction_refused)

    def _memories(self, m: Module, engines) -> list[tuple[ErrorSource, Value]]:
        """The memories; for each client, a signal that it left its bank."""
        config = self._config
        load, matrix, vector, store = (engines[engine] for engine in ENGINES)
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        act = BankedMemory(width=word, banks=config.act_banks, depth=config.act_depth, readers=4, writers=2)
        acc = BankedMemory(
            width=wide, banks=config.acc_banks, depth=config.acc_depth, readers=2, writers=2, zero_without={0}
        )
        wgt = BankedMemory(width=word, banks=1, depth=config.wgt_depth, readers=1, writers=2)
        par = BankedMemory(width=wide, banks=1, depth=config.par_depth, readers=1, writers=1)
        started, oldest = Whose.STARTED_BEFORE, Whose.OLDEST
        # (port, engine, whose instruction uses it when a read's register or a write says that it is outside)
        act_in = [(matrix.act, Engine.MATRIX, started), (vector.a, Engine.VECTOR, started)]
        act_in += [(vector.b, Engine.VECTOR, started), (store.act, Engine.STORE, started)]
        act_out = [(load.act, Engine.LOAD, oldest), (vector.act_out, Engine.VECTOR, oldest)]
        # what MATRIX reads of ACC it writes a few cycles later; where it does not read, it starts from 0
        acc_in = [(matrix.acc_in, None, started), (vector.acc, Engine.VECTOR, started)]
        acc_out = [(matrix.acc_out, Engine.MATRIX, oldest), (vector.acc_out, Engine.VECTOR, oldest)]
        wgt_out = [(load.wgt, Engine.LOAD, oldest), (vector.wgt_out, Engine.VECTOR, oldest)]
        connections = {
            "act": (act, act_in, act_out),
            "acc": (acc, acc_in, acc_out),
            "wgt": (wgt, [(matrix.wgt, Engine.MATRIX, Whose.ISSUED)], wgt_out),
            "par": (par, [(vector.par, Engine.VECTOR, Whose.ISSUED)], [(load.par, Engine.LOAD, oldest)]),
        }
        outside = []
        for name, (memory, readers, writers) in connections.items():
            m.submodules[name] = memory
            for clients, ports, flags in (
                (readers, memory.reads, memory.read_outside), (writers, memory.writes, memory.write_outside)
            ):  # fmt: skip
                for (client, engine, whose), port, flag in zip(clients, ports, flags, strict=True):
                    wiring.connect(m, client, port)
                    if engine is not None:
                        outside.append((ErrorSource(ErrorCause.ON_CHIP_ADDRESS, engine, whose), flag))
        return outside

    def _errors(
        self, m: Module, fetch, begin: Signal, stop: Signal, of_beat: Value,
        sources: list[tuple[ErrorSource, Value]],
    ) -> None:  # fmt: skip
        m.submodules.log = log = ErrorLog(self._config, [source for source, _ in sources])
        m.d.comb += [
            log.raised.eq(Cat(signal for _, signal in sources)),
            log.number.eq(Mux(begin, 0, Mux(of_beat, fetch.beat_index, fetch.index))),
            log.clear.eq(fetch.start),
            log.armed.eq(begin | self.running),
            log.queue_number.eq(fetch.index),
            log.queue.eq(self.trace_queue),
            log.issue.eq(self.trace_issue),
            log.start.eq(self.trace_start),
            log.end.eq(self.trace_end),
            self.errors.eq(log.errors),
            self.error_index.eq(log.index),
            stop.eq(log.stop | self.abort),
        ]
