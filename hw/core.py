"""The accelerator: FETCH, the engines, their memories, and the bus."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from npukit.hw.axi import INCREMENTING, OKAY, axi4_signature, axi_lite_signature, size_of
from npukit.hw.counters import Counters
from npukit.hw.errors import ErrorLog, ErrorSource, Whose
from npukit.hw.fetch import FetchUnit
from npukit.hw.layout import instruction_layout
from npukit.hw.load import LoadEngine
from npukit.hw.matrix import MatrixEngine
from npukit.hw.memory import BankedMemory
from npukit.hw.ports import PortOwners
from npukit.hw.registers import RegisterFile
from npukit.hw.store import StoreEngine
from npukit.hw.tokens import TokenCounters
from npukit.hw.vector import VectorEngine
from npukit.isa.config import NpuConfig
from npukit.isa.instructions import ENGINES, INSTRUCTION_BITS, Engine, Load
from npukit.isa.registers import COUNTERS, ErrorCause
from npukit.isa.timing import READ_OUTSTANDING

__all__ = ["Core"]

_NAMES = [engine.name.lower() for engine in ENGINES]
_PAGE_BITS = 12
"""Program and base lie at multiples of 4 KiB."""


class Core(wiring.Component):
    """One accelerator.

    Members: `s_axil`, AXI4-Lite for registers; `m_axi`, AXI4 for memory; `trace_*`, a bit for each engine: it
    queued, issued, started or ended an instruction in this cycle; `trace_running`, `trace_done`.
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        count = len(ENGINES)
        super().__init__(
            {
                "s_axil": In(axi_lite_signature()),
                "m_axi": Out(axi4_signature(config.bus_bytes)),
                "trace_queue": Out(count),
                "trace_issue": Out(count),
                "trace_start": Out(count),
                "trace_end": Out(count),
                "trace_running": Out(1),
                "trace_done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = registers = RegisterFile(self._config.hash)
        wiring.connect(m, wiring.flipped(self.s_axil), registers.bus)
        inner = Machine(self._config)
        # AXI knows no way to take a burst back: a reset waits until those that are on the bus have ended
        resetting, reset = Signal(), Signal()
        with m.If(registers.reset_core):
            m.d.sync += resetting.eq(1)
        with m.If(reset):
            m.d.sync += resetting.eq(0)
        m.d.sync += reset.eq(resetting & ~reset & ~inner.running & inner.quiet)
        m.submodules.machine = ResetInserter(reset)(inner)
        wiring.connect(m, wiring.flipped(self.m_axi), inner.m_axi)
        m.d.comb += [
            inner.start.eq(registers.start),
            inner.abort.eq(resetting),
            registers.busy.eq(inner.running | resetting),
            registers.clear.eq(reset),
            inner.hash_matches.eq(registers.wide("PROGRAM_HASH") == self._config.hash),
            inner.program.eq(registers.wide("PROGRAM")),
            inner.length.eq(registers.value("PROGRAM_LENGTH")),
            inner.base.eq(registers.wide("BASE")),
            inner.limit.eq(registers.wide("LIMIT")),
            registers.value("STATUS").eq(Cat(registers.busy, inner.finished, inner.errors.any())),
            registers.value("ERROR").eq(inner.errors),
            registers.value("ERROR_INDEX").eq(inner.error_index),
            self.trace_running.eq(inner.running),
        ]
        m.d.comb += [
            inner.counter_reading.eq(registers.counter_reading),
            inner.counter_index.eq(registers.counter_index),
            registers.counter.eq(inner.counter),
        ]
        for name in ("trace_queue", "trace_issue", "trace_start", "trace_end", "trace_done"):
            m.d.comb += getattr(self, name).eq(getattr(inner, name))
        return m


class Machine(wiring.Component):
    """All but the registers; the reset of the core clears it.

    Members: `start` with what the registers hold, which must not change until `running` falls; `abort`: end the program
    as after an error; `quiet`: no burst is outstanding.
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
                "errors": Out(len(ErrorCause)),
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
        m.submodules.tokens = tokens = TokenCounters()
        m.submodules.ports = ports = PortOwners(config)
        m.submodules.load = load = LoadEngine(config)
        m.submodules.matrix = matrix = MatrixEngine(config)
        m.submodules.vector = vector = VectorEngine(config)
        m.submodules.store = store = StoreEngine(config)
        engines = [load, matrix, vector, store]

        begin, aligned = Signal(), Signal()
        stop = Signal()
        m.d.comb += [
            begin.eq(self.start & ~self.running & ~stop),
            aligned.eq((self.program[:_PAGE_BITS] == 0) & (self.base[:_PAGE_BITS] == 0)),
            fetch.start.eq(begin & self.hash_matches & aligned),
            fetch.length.eq(self.length),
            fetch.stop.eq(stop),
            self.running.eq(fetch.running),
            tokens.clear.eq(fetch.start),
        ]
        m.d.sync += self.trace_done.eq(fetch.done)
        with m.If(fetch.done):
            m.d.sync += self.finished.eq(1)
        with m.If(begin):
            m.d.sync += self.finished.eq(~fetch.start)

        idle = self._queues(m, fetch, tokens, ports, engines, stop)
        reads = self._reads(m, fetch, load, stop)
        writes = self._writes(m, store, stop)
        m.d.comb += [fetch.idle.eq(idle), self.quiet.eq(~reads & ~writes), fetch.quiet.eq(self.quiet)]
        outside = self._memories(m, load, matrix, vector, store)
        self._port_masks(m, ports, load, matrix, vector, store)
        foreign = ErrorSource(ErrorCause.CONFIGURATION), begin & ~self.hash_matches
        unaligned = ErrorSource(ErrorCause.DRAM_ADDRESS), begin & self.hash_matches & ~aligned
        sources = [foreign, unaligned, *outside, *self._bus_errors(fetch, tokens, load, store)]
        self._errors(m, fetch, begin, stop, sources)
        return m

    # ---- control

    def _queues(self, m: Module, fetch, tokens, ports, engines, stop: Signal):
        """Queues, tokens, grants and counters; whether everything is idle."""
        config = self._config
        m.submodules.counters = counters = Counters()
        idle = 1
        for number, (name, engine) in enumerate(zip(_NAMES, engines, strict=True)):
            queue = SyncFIFO(width=INSTRUCTION_BITS, depth=config.queue_depth)
            m.submodules[f"queue_{name}"] = queue
            header = instruction_layout(Load)(queue.r_data)
            in_flight = Signal(8, name=f"{name}_in_flight")
            granted, active = Signal(name=f"{name}_granted"), Signal(8, name=f"{name}_active")
            """Started in the cycle before; started earlier, with an end that has not been seen. The grant comes late in
            its cycle, too late for a sum."""
            there = getattr(tokens, f"there_{number}")
            ordered = Signal(name=f"{name}_ordered")
            m.d.comb += [
                queue.w_data.eq(fetch.instruction),
                queue.w_en.eq(fetch.push[number]),
                fetch.ready[number].eq(queue.w_rdy),
                engine.head.eq(queue.r_data),
                engine.head_valid.eq(queue.r_rdy & ~stop),
                ordered.eq(((header.wait & ~there) == 0) & (~header.drain | (in_flight == 0))),
                engine.issue_ok.eq(ordered),
                queue.r_en.eq(engine.issue),
                getattr(tokens, f"issue_{number}").eq(engine.issue),
                getattr(tokens, f"wait_{number}").eq(header.wait),
                getattr(tokens, f"end_{number}").eq(engine.end),
                getattr(tokens, f"signal_{number}").eq(engine.end_signal),
                getattr(ports, f"request_{number}").eq(engine.start_request),
                engine.start_grant.eq(getattr(ports, f"grant_{number}")),
                self.trace_queue[number].eq(fetch.push[number]),
                self.trace_issue[number].eq(engine.issue),
                self.trace_start[number].eq(engine.start_grant),
                self.trace_end[number].eq(engine.end),
                getattr(counters, f"{name}_busy").eq(engine.start_grant | granted | (active != 0)),
                getattr(counters, f"{name}_token").eq(engine.head_valid & engine.front_free & ~ordered),
                getattr(counters, f"{name}_port").eq(engine.start_request & ~engine.start_grant),
                getattr(counters, f"{name}_dram").eq(engine.dram_wait),
            ]
            m.d.sync += [
                in_flight.eq(in_flight + engine.issue - engine.end),
                granted.eq(engine.start_grant),
                active.eq(active + granted - engine.end),
            ]
            idle = idle & (in_flight == 0) & ~queue.r_rdy
        store = engines[Engine.STORE]
        m.d.comb += [
            counters.store_dram.eq(counters.store_busy & ~store.data_take),
            counters.fetch_stall.eq(fetch.stall),
            counters.read_beats.eq(self.m_axi.rvalid & self.m_axi.rready),
            counters.write_beats.eq(self.m_axi.wvalid & self.m_axi.wready),
            counters.cycles.eq(1),
            counters.clear.eq(fetch.start),
            counters.count.eq(self.running),
            counters.reading.eq(self.counter_reading),
            counters.index.eq(self.counter_index),
            self.counter.eq(counters.value),
        ]
        return idle

    def _bus_errors(self, fetch, tokens, load, store) -> list[tuple[ErrorSource, Value]]:
        """What may go wrong outside of the memories, each with its signal."""
        axi = self.m_axi
        refused_read = axi.rvalid & axi.rready & (axi.rresp != OKAY)
        refused_write = axi.bvalid & axi.bready & (axi.bresp != OKAY)
        load_outside, store_outside = load.request_outside, store.address_outside
        overflows = (
            (ErrorSource(ErrorCause.TOKEN_OVERFLOW, engine, Whose.ENDED), tokens.overflow[engine]) for engine in ENGINES
        )
        cause = ErrorCause
        return [
            (ErrorSource(cause.READ_RESPONSE, Engine.LOAD, Whose.OLDEST), refused_read & ~fetch.beat_valid),
            (ErrorSource(cause.WRITE_RESPONSE, Engine.STORE, Whose.OLDEST), refused_write),
            (ErrorSource(cause.DRAM_ADDRESS, Engine.LOAD, Whose.ISSUED), load.request_valid & load_outside),
            (ErrorSource(cause.DRAM_ADDRESS, Engine.STORE, Whose.STARTED), store.address_valid & store_outside),
            *overflows,
            (ErrorSource(cause.READ_RESPONSE), refused_read & fetch.beat_valid),
            (ErrorSource(cause.ILLEGAL_INSTRUCTION), fetch.illegal),
            (ErrorSource(cause.MISSING_END), fetch.missing_end),
        ]

    def _errors(
        self, m: Module, fetch, begin: Signal, stop: Signal, sources: list[tuple[ErrorSource, Value]]
    ) -> None:  # fmt: skip
        m.submodules.log = log = ErrorLog(self._config, [source for source, _ in sources])
        of_beat = fetch.beat_valid & (self.m_axi.rresp != OKAY)
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

    # ---- bus

    def _reads(self, m: Module, fetch, load, stop: Signal) -> Signal:
        """The read address and data channels; whether reads are outstanding."""
        axi = self.m_axi
        # one more than may be in flight: an address that waits for room is on the bus already, and keeps its turn
        m.submodules.order = order = SyncFIFO(width=1, depth=READ_OUTSTANDING + 1)
        held, holder = Signal(), Signal()
        """An address was presented and not accepted; whose: 0 FETCH, 1 LOAD."""
        load_wants = load.request_valid & ~load.request_outside & ~stop
        of_load = Signal()
        valid = Signal()
        accepted = Signal()
        address = Signal(64)
        m.d.comb += [
            of_load.eq(Mux(held, holder, ~fetch.request_valid)),
            valid.eq(held | ((fetch.request_valid | load_wants) & order.w_rdy)),
            address.eq(Mux(of_load, self.base + load.request_address, self.program + fetch.request_offset)),
            axi.arvalid.eq(valid),
            axi.araddr.eq(address),
            axi.arlen.eq(Mux(of_load, load.request_beats, fetch.request_beats)),
            axi.arsize.eq(size_of(self._config.bus_bytes)),
            axi.arburst.eq(INCREMENTING),
            accepted.eq(valid & axi.arready),
            fetch.request_take.eq(accepted & ~of_load),
            load.request_take.eq(accepted & of_load),
            order.w_en.eq(accepted),
            order.w_data.eq(of_load),
        ]
        m.d.sync += [held.eq(valid & ~accepted), holder.eq(of_load)]
        to_load = order.r_data[0]
        m.d.comb += [
            fetch.beat_valid.eq(axi.rvalid & order.r_rdy & ~to_load),
            fetch.beat_data.eq(axi.rdata),
            load.beat_valid.eq(axi.rvalid & order.r_rdy & to_load),
            load.beat_data.eq(axi.rdata),
            # after an error, beats that LOAD no longer wants are thrown away
            axi.rready.eq(order.r_rdy & (~to_load | load.beat_ready | stop)),
            order.r_en.eq(axi.rvalid & axi.rready & axi.rlast),
            load.limit.eq(self.limit),
        ]
        outstanding = Signal(name="reads_outstanding")
        m.d.comb += outstanding.eq(order.r_rdy | held)
        return outstanding

    def _writes(self, m: Module, store, stop: Signal) -> Signal:
        """The three write channels; whether writes are outstanding. Bursts that are accepted are completed after
        an error, too: STORE's data side goes on."""
        axi = self.m_axi
        held = Signal()
        """An address was presented and not accepted."""
        m.d.sync += held.eq(axi.awvalid & ~axi.awready)
        m.d.comb += [
            axi.awvalid.eq(store.address_valid & ~store.address_outside & (~stop | held)),
            axi.awaddr.eq(self.base + store.address),
            axi.awlen.eq(store.address_beats),
            axi.awsize.eq(size_of(self._config.bus_bytes)),
            axi.awburst.eq(INCREMENTING),
            store.address_take.eq(axi.awvalid & axi.awready),
            axi.wvalid.eq(store.data_valid),
            axi.wdata.eq(store.data),
            axi.wstrb.eq(store.strobe),
            axi.wlast.eq(store.data_last),
            store.data_take.eq(axi.wvalid & axi.wready),
            axi.bready.eq(1),
            store.response.eq(axi.bvalid),
            store.limit.eq(self.limit),
        ]
        outstanding = Signal(name="writes_outstanding")
        m.d.comb += outstanding.eq(store.outstanding | held)
        return outstanding

    # ---- memories and ports

    def _memories(self, m: Module, load, matrix, vector, store) -> list[tuple[ErrorSource, Value]]:
        """The memories; for each client, a signal that it left its bank."""
        config = self._config
        word, wide = 8 * config.word_bytes, 8 * config.wide_word_bytes
        act = BankedMemory(width=word, banks=config.act_banks, depth=config.act_depth, readers=4, writers=2)
        acc = BankedMemory(
            width=wide, banks=config.acc_banks, depth=config.acc_depth, readers=2, writers=2, zero_without={0}
        )
        wgt = BankedMemory(width=word, banks=1, depth=config.wgt_depth, readers=1, writers=1)
        par = BankedMemory(width=wide, banks=1, depth=config.par_depth, readers=1, writers=1)
        started, oldest = Whose.STARTED_BEFORE, Whose.OLDEST
        # (port, engine, whose instruction uses it when a read's register or a write says that it is outside)
        act_in = [(matrix.act, Engine.MATRIX, started), (vector.a, Engine.VECTOR, started)]
        act_in += [(vector.b, Engine.VECTOR, started), (store.act, Engine.STORE, started)]
        act_out = [(load.act, Engine.LOAD, oldest), (vector.act_out, Engine.VECTOR, oldest)]
        # what MATRIX reads of ACC it writes a few cycles later; where it does not read, it starts from 0
        acc_in = [(matrix.acc_in, None, started), (vector.acc, Engine.VECTOR, started)]
        acc_out = [(matrix.acc_out, Engine.MATRIX, oldest), (vector.acc_out, Engine.VECTOR, oldest)]
        connections = {
            "act": (act, act_in, act_out),
            "acc": (acc, acc_in, acc_out),
            "wgt": (wgt, [(matrix.wgt, Engine.MATRIX, Whose.ISSUED)], [(load.wgt, Engine.LOAD, oldest)]),
            "par": (par, [(vector.par, Engine.VECTOR, Whose.ISSUED)], [(load.par, Engine.LOAD, oldest)]),
        }
        outside = []
        for name, (memory, readers, writers) in connections.items():
            m.submodules[name] = memory
            for kind, clients in (("read", readers), ("write", writers)):
                for k, (client, engine, whose) in enumerate(clients):
                    wiring.connect(m, client, getattr(memory, f"{kind}_{k}"))
                    if engine is not None:
                        source = ErrorSource(ErrorCause.ON_CHIP_ADDRESS, engine, whose)
                        outside.append((source, getattr(memory, f"{kind}_outside")[k]))
        return outside

    def _port_masks(self, m: Module, ports, load, matrix, vector, store) -> None:
        def want(engine: Engine, kind: str):
            return getattr(ports, f"want_{int(engine)}_{kind}")

        def free(engine: Engine, kind: str):
            return getattr(ports, f"free_{int(engine)}_{kind}")

        def mask(condition, bank):
            return Mux(condition, 1 << bank, 0)

        m.d.comb += [
            want(Engine.LOAD, "act_write").eq(mask(load.start_act, load.start_bank)),
            free(Engine.LOAD, "act_write").eq(mask(load.end_act, load.end_bank)),
            want(Engine.MATRIX, "act_read").eq(1 << matrix.start_act_bank),
            want(Engine.MATRIX, "acc_write").eq(1 << matrix.start_acc_bank),
            want(Engine.MATRIX, "acc_read").eq(mask(matrix.start_acc_read, matrix.start_acc_bank)),
            free(Engine.MATRIX, "act_read").eq(mask(matrix.free_act, matrix.free_act_bank)),
            free(Engine.MATRIX, "acc_write").eq(mask(matrix.end, matrix.end_bank)),
            free(Engine.MATRIX, "acc_read").eq(mask(matrix.end & matrix.end_acc_read, matrix.end_bank)),
            want(Engine.STORE, "act_read").eq(1 << store.start_bank),
            free(Engine.STORE, "act_read").eq(mask(store.free_act, store.free_bank)),
        ]
        for memory in ("act", "acc"):
            m.d.comb += [
                want(Engine.VECTOR, f"{memory}_read").eq(getattr(vector, f"start_{memory}_read")),
                want(Engine.VECTOR, f"{memory}_write").eq(getattr(vector, f"start_{memory}_write")),
                free(Engine.VECTOR, f"{memory}_read").eq(getattr(vector, f"free_{memory}_read")),
                free(Engine.VECTOR, f"{memory}_write").eq(getattr(vector, f"end_{memory}_write")),
            ]
