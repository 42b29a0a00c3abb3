"""A controller for single data rate SDRAM behind AXI4.

Rows stay open until another row of their bank is wanted or a refresh is due; columns of open rows follow each other
without a gap within a burst, and reads are on their way while the next ones are asked for. One burst is served at a
time, reads and writes by turns where both wait. Our own, because open controllers for it are written in other
languages, and cores of a system builder bring their buses with them.
"""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2
from npukit.hw.axi import OKAY, axi4_signature
from npukit.hw.delay import delay
from npukit.isa.sdram import READ_BUFFER, REFRESHES_LATE, ROW_SPACING, WRITE_BUFFER, SdramChip

__all__ = ["SdramController", "sdram_signature"]

_MODE, _REFRESH, _PRECHARGE, _ACTIVATE, _WRITE, _READ, _NOP = 0b000, 0b001, 0b010, 0b011, 0b100, 0b101, 0b111
"""ras_n, cas_n, we_n, from the left."""
_ALL_BANKS = 1 << 10
"""A10 with PRECHARGE."""


def sdram_signature(chip: SdramChip) -> wiring.Signature:
    """A 16-bit chip's pins, without its clock. All outputs come from registers."""
    return wiring.Signature(
        {
            "cke": Out(1),
            "cs_n": Out(1),
            "ras_n": Out(1),
            "cas_n": Out(1),
            "we_n": Out(1),
            "bank": Out(chip.bank_bits),
            "address": Out(chip.row_bits),
            "dqm": Out(2),
            "dq_out": Out(16),
            "dq_drive": Out(1),
            "dq_in": In(16),
        }
    )


class SdramController(wiring.Component):
    """AXI4 bursts (INCR, beats of the bus's width) to commands.

    `dq_in` has a register in here; the chip's clock comes a quarter of a period after this one, so that a word is taken
    `cas_latency` cycles after its READ was on the pins. Addresses wrap at the chip's size.

    Args:
        io_cycles: of further registers between here and the pins, there and back.

    Members: `bus`: AXI4, the subordinate's side; `pins`; refresh_due: from the next cycle on, a refresh is.
    """

    def __init__(
        self, chip: SdramChip, megahertz: float, bus_bytes: int, *, id_bits: int = 1, io_cycles: int = 0
    ) -> None:
        if bus_bytes not in (4, 8, 16):
            raise ValueError(f"the SDRAM controller's bus has 4, 8 or 16 bytes, not {bus_bytes}")
        self._chip, self._times, self._bytes = chip, chip.times(megahertz), bus_bytes
        self._words, self._io_cycles = bus_bytes // 2, io_cycles
        super().__init__(
            {
                "bus": In(axi4_signature(bus_bytes, id_bits=id_bits)),
                "pins": Out(sdram_signature(chip)),
                "refresh_due": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.requests = requests = _Requests(self._chip, self._bytes, len(self.bus.arid))
        m.submodules.reader = reader = _Reader(
            self._times.cas_latency + self._io_cycles, self._words, len(self.bus.arid)
        )
        m.submodules.writer = writer = _Writer(self._words, len(self.bus.awid))
        for part in (requests, reader, writer):
            for path, _, _ in part.bus.signature.flatten(part.bus):
                name = str(path[0])
                mine, inner = getattr(self.bus, name), getattr(part.bus, name)
                flow = part.bus.signature.members[name].flow
                m.d.comb += inner.eq(mine) if flow == In else mine.eq(inner)
        m.d.comb += [
            reader.dq_in.eq(self.pins.dq_in),
            self.pins.dqm.eq(writer.dqm),
            self.pins.dq_out.eq(writer.dq_out),
            self.pins.dq_drive.eq(writer.dq_drive),
        ]
        self._commands(m, requests, reader, writer)
        return m

    def _commands(self, m: Module, requests: "_Requests", reader: "_Reader", writer: "_Writer") -> None:
        """One command a cycle at most. What follows one waits as long as any rule says, whatever the bank."""
        times, chip, pins = self._times, self._chip, self.pins
        command = Signal(3)
        """ras_n, cas_n, we_n, from the left."""
        bank, address = Signal(chip.bank_bits), Signal(chip.row_bits)
        m.d.comb += [command.eq(_NOP), bank.eq(requests.bank)]
        m.d.sync += [
            pins.cke.eq(1),
            pins.cs_n.eq(0),
            Cat(pins.we_n, pins.cas_n, pins.ras_n).eq(command),
            pins.bank.eq(bank),
            pins.address.eq(address),
        ]

        precharge = max(times.precharge, ROW_SPACING)
        activate = max(times.activate_to_column, times.bank_to_bank, ROW_SPACING)
        longest = max(times.power_up, times.refresh_cycle, precharge, activate, times.mode, self._words)
        wait = _Countdown(m, "wait", longest, init=times.power_up)
        """Until another command may come."""
        open_for = _Countdown(m, "open_for", max(times.row_active, times.row_cycle))
        """Until a row may be closed."""
        recovery = _Countdown(m, "recovery", times.write_recovery + self._words)
        turn = _Countdown(m, "turn", times.cas_latency + self._words)
        """Until what was written may be closed; until the data pins are free of what was read."""

        # of the beat's bank, as it was a cycle before: what changes it is followed by a cycle without a command
        rows = Array(Signal(chip.row_bits, name=f"row_{number}") for number in range(1 << chip.bank_bits))
        is_open = Signal(1 << chip.bank_bits)
        opened, hit = Signal(), Signal()
        m.d.sync += [
            opened.eq(is_open.bit_select(requests.bank, 1)),
            hit.eq(rows[requests.bank] == requests.row),
        ]

        late, due = Signal(range(REFRESHES_LATE + 1)), Signal()
        """Refreshes that are due; whether one is."""
        interval = Signal(range(times.refresh_interval), init=times.refresh_interval - 1)
        refreshed, next_late = Signal(), Signal.like(late)
        m.d.sync += interval.eq(Mux(interval == 0, times.refresh_interval - 1, interval - 1))
        m.d.comb += self.refresh_due.eq(interval == 0)
        m.d.comb += next_late.eq(late + ((interval == 0) & (late != REFRESHES_LATE)) - refreshed)
        m.d.sync += [late.eq(next_late), due.eq(next_late != 0)]

        with m.FSM():
            with m.State("POWER"), m.If(wait.over):
                m.d.comb += [command.eq(_PRECHARGE), address.eq(_ALL_BANKS)]
                m.d.sync += [late.eq(chip.initial_refreshes), due.eq(1)]
                wait.begin(precharge - 1)
                m.next = "REFRESH"
            with m.State("REFRESH"), m.If(wait.over):
                with m.If(due):
                    m.d.comb += [command.eq(_REFRESH), refreshed.eq(1)]
                    wait.begin(times.refresh_cycle - 1)
                with m.Else():
                    m.d.comb += [command.eq(_MODE), address.eq(exact_log2(self._words) | times.cas_latency << 4)]
                    wait.begin(times.mode - 1)
                    m.next = "RUN"
            with m.State("RUN"), m.If(wait.over):
                with m.If(due):
                    with m.If(is_open == 0):
                        m.d.comb += [command.eq(_REFRESH), refreshed.eq(1)]
                        wait.begin(times.refresh_cycle - 1)
                    with m.Elif(open_for.over & recovery.over):
                        m.d.comb += [command.eq(_PRECHARGE), address.eq(_ALL_BANKS)]
                        m.d.sync += is_open.eq(0)
                        wait.begin(precharge - 1)
                with m.Elif(requests.settled & opened & hit):
                    m.d.comb += address.eq(requests.column)
                    with m.If(requests.is_write & writer.ready & turn.over):
                        m.d.comb += [command.eq(_WRITE), writer.go.eq(1), requests.take.eq(1)]
                        wait.begin(self._words - 1)
                        recovery.begin(times.write_recovery + self._words - 2)
                    with m.Elif(~requests.is_write & reader.ready):
                        m.d.comb += [command.eq(_READ), reader.go.eq(1), requests.take.eq(1)]
                        wait.begin(self._words - 1)
                        turn.begin(times.cas_latency + self._words)
                with m.Elif(requests.settled & opened):
                    with m.If(open_for.over & recovery.over):
                        m.d.comb += command.eq(_PRECHARGE)
                        m.d.sync += is_open.bit_select(requests.bank, 1).eq(0)
                        wait.begin(precharge - 1)
                with m.Elif(requests.settled):
                    m.d.comb += [command.eq(_ACTIVATE), address.eq(requests.row)]
                    m.d.sync += [
                        rows[requests.bank].eq(requests.row),
                        is_open.bit_select(requests.bank, 1).eq(1),
                    ]
                    wait.begin(activate - 1)
                    open_for.begin(max(times.row_active, times.row_cycle - times.precharge) - 1)
        m.d.comb += [
            reader.last.eq(requests.last),
            reader.id.eq(requests.id),
            writer.last.eq(requests.last),
            writer.id.eq(requests.id),
        ]


class _Countdown:
    """Cycles that are left of a time, and a register that says whether none is.

    Parameters:
        most: cycles that it may have. init: after a reset.

    Attributes:
        over: no cycle is left.
    """

    def __init__(self, m: Module, name: str, most: int, init: int = 0) -> None:
        self._m, self._most, self._left = m, most, Signal(range(most + 1), name=name, init=init)
        self.over = Signal(name=f"{name}_over", init=init == 0)
        m.d.sync += [self._left.eq(self._left - ~self.over), self.over.eq(self._left <= 1)]

    def begin(self, cycles: int) -> None:
        """From the next cycle on so many are left; where statements are added to the module, after its other ones."""
        assert 0 <= cycles <= self._most
        self._m.d.sync += [self._left.eq(cycles), self.over.eq(cycles == 0)]


def _part(signature: wiring.Signature, names: tuple[str, ...]) -> wiring.Signature:
    """Some members of the subordinate's side."""
    return wiring.Signature({name: signature.members[name].flip() for name in names})


class _Requests(wiring.Component):
    """The burst that is served, beat by beat: reads and writes by turns where both wait.

    Members: `bus`: address channels. bank, row, column (of a beat), is_write, last and id: of the burst that there is.
    settled: there is one, and was in the cycle before; take: the next beat is wanted.
    """

    def __init__(self, chip: SdramChip, bus_bytes: int, id_bits: int) -> None:
        self._chip, self._bytes = chip, bus_bytes
        names = tuple(
            f"a{side}{name}" for side in "rw" for name in ("id", "addr", "len", "size", "burst", "valid", "ready")
        )
        super().__init__(
            {
                "bus": Out(_part(axi4_signature(bus_bytes, id_bits=id_bits), names)),
                "settled": Out(1),
                "is_write": Out(1),
                "bank": Out(chip.bank_bits),
                "row": Out(chip.row_bits),
                "column": Out(chip.column_bits),
                "last": Out(1),
                "id": Out(id_bits),
                "take": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, chip = self.bus, self._chip
        low = exact_log2(self._bytes)
        beat = Signal(exact_log2(chip.bytes) - low)
        """Address of the beat, in beats."""
        left, choose_write, words = Signal(8), Signal(), low - 1
        valid, last = Signal(), Signal()
        m.d.comb += [
            choose_write.eq(bus.awvalid & (~bus.arvalid | ~self.is_write)),
            # neither waits for its own address to be there
            bus.awready.eq(~valid & (~bus.arvalid | ~self.is_write)),
            bus.arready.eq(~valid & (~bus.awvalid | self.is_write)),
            Cat(self.column[words:], self.bank, self.row).eq(beat),
            self.last.eq(last),
        ]
        m.d.sync += self.settled.eq(valid & ~(self.take & last))
        with m.If(~valid):
            with m.If(bus.awvalid | bus.arvalid):
                m.d.sync += [
                    valid.eq(1),
                    self.is_write.eq(choose_write),
                    beat.eq(Mux(choose_write, bus.awaddr, bus.araddr) >> low),
                    left.eq(Mux(choose_write, bus.awlen, bus.arlen)),
                    last.eq(Mux(choose_write, bus.awlen, bus.arlen) == 0),
                    self.id.eq(Mux(choose_write, bus.awid, bus.arid)),
                ]
        with m.Elif(self.take):
            m.d.sync += [beat.eq(beat + 1), left.eq(left - 1), last.eq(left == 1), valid.eq(~last)]
        return m


class _Reader(wiring.Component):
    """Words that come back, put together to beats.

    Members: ready: another beat has room; go: its READ goes out with the next edge; last, id: of that beat.
    """

    def __init__(self, cas_latency: int, words: int, id_bits: int) -> None:
        self._latency, self._words, self._id_bits = cas_latency, words, id_bits
        names = ("rid", "rdata", "rresp", "rlast", "rvalid", "rready")
        super().__init__(
            {
                "bus": Out(_part(axi4_signature(2 * words, id_bits=id_bits), names)),
                "ready": Out(1),
                "go": In(1),
                "last": In(1),
                "id": In(id_bits),
                "dq_in": In(16),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, words = self.bus, self._words
        m.submodules.fifo = fifo = SyncFIFO(width=16 * words + 1 + self._id_bits, depth=READ_BUFFER)
        m.submodules.tags = tags = SyncFIFO(width=1 + self._id_bits, depth=READ_BUFFER)
        room, taken_out = Signal(range(READ_BUFFER + 1), init=READ_BUFFER), bus.rvalid & bus.rready
        # `go` is seen a cycle late: in the cycle behind it there is no other
        m.d.sync += [room.eq(room - self.go + taken_out), self.ready.eq((room != 0) | taken_out)]
        taken = Signal(16)
        """The word that the pins had at the last edge."""
        # the READ is on the pins a cycle after `go`, and its first word in `taken` so many cycles later
        first = delay(m, self.go, self._latency + 1, "first")
        index, beat = Signal(range(words)), Signal(16 * words)
        running = first | (index != 0)
        m.d.sync += taken.eq(self.dq_in)
        whole = Cat(beat[16:], taken)
        with m.If(running):
            m.d.sync += [beat.eq(whole), index.eq(index + 1)]
            with m.If(index == words - 1):
                m.d.sync += index.eq(0)
        m.d.comb += [
            tags.w_en.eq(self.go),
            tags.w_data.eq(Cat(self.last, self.id)),
            tags.r_en.eq(fifo.w_en),
            fifo.w_en.eq(running & (index == words - 1)),
            fifo.w_data.eq(Cat(whole, tags.r_data)),
            fifo.r_en.eq(bus.rready),
            bus.rvalid.eq(fifo.r_rdy),
            Cat(bus.rdata, bus.rlast, bus.rid).eq(fifo.r_data),
            bus.rresp.eq(OKAY),
        ]
        return m


class _Writer(wiring.Component):
    """Beats to words, from the WRITE's own cycle on.

    Members: ready: a beat is there, and its response has room; go: its WRITE goes out with the next edge; last, id: of
    that beat; dq_out, dq_drive, dqm: registers.
    """

    def __init__(self, words: int, id_bits: int) -> None:
        self._words, self._id_bits = words, id_bits
        names = ("wdata", "wstrb", "wlast", "wvalid", "wready", "bid", "bresp", "bvalid", "bready")
        super().__init__(
            {
                "bus": Out(_part(axi4_signature(2 * words, id_bits=id_bits), names)),
                "ready": Out(1),
                "go": In(1),
                "last": In(1),
                "id": In(id_bits),
                "dq_out": Out(16),
                "dq_drive": Out(1),
                "dqm": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, words = self.bus, self._words
        m.submodules.fifo = fifo = SyncFIFO(width=18 * words, depth=WRITE_BUFFER)
        m.submodules.responses = responses = SyncFIFO(width=self._id_bits, depth=4)
        rest, count = Signal(18 * words), Signal(range(words))
        # each word with its strobes
        beat = Cat(Cat(bus.wdata.word_select(one, 16), bus.wstrb.word_select(one, 2)) for one in range(words))
        m.d.comb += [
            fifo.w_en.eq(bus.wvalid),
            fifo.w_data.eq(beat),
            bus.wready.eq(fifo.w_rdy),
            fifo.r_en.eq(self.go),
            self.ready.eq(fifo.r_rdy & responses.w_rdy),
            responses.w_en.eq(self.go & self.last),
            responses.w_data.eq(self.id),
            responses.r_en.eq(bus.bready),
            bus.bvalid.eq(responses.r_rdy),
            bus.bid.eq(responses.r_data),
            bus.bresp.eq(OKAY),
        ]
        going = Signal()
        """Words of a beat follow its first one."""
        m.d.sync += [going.eq(Mux(self.go, words > 1, count > 1)), self.dq_drive.eq(self.go | going)]
        with m.If(self.go):
            m.d.sync += count.eq(words - 1)
        with m.Elif(going):
            m.d.sync += count.eq(count - 1)
        # until the first word goes, the oldest beat's is there: what is not driven does not matter, but for the mask
        word = Signal(18)
        m.d.comb += word.eq(Mux(going, rest[:18], fifo.r_data[:18]))
        m.d.sync += [
            rest.eq(Mux(going, rest, fifo.r_data) >> 18),
            self.dq_out.eq(word[:16]),
            self.dqm.eq(Mux(self.go | going, ~word[16:], 0)),
        ]
        return m
