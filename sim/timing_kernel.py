"""The timing half's state machines, over integer arrays; `docs/timing.md` states them cycle by cycle.

Every unit is evaluated on registered state: what happens in cycle t is seen by others in t + 1. The
loop visits only cycles in which something can change. Pure functions over arrays, so that they run
the same with and without the compiler.
"""

import numpy as np
from npukit.sim import sdram_kernel as sdram
from npukit.sim.compiled import njit

__all__ = [
    "C_COUNT",
    "I_COUNT",
    "N_COUNT",
    "S_COUNT",
    "simulate",
]

NEVER = np.int64(1) << 60


# indices of the constants array
(
    C_LATENCY, C_READ_BURSTS, C_WRITE_BURSTS, C_QUEUE_DEPTH, C_BUS_BYTES, C_MAX_BURST, C_FETCH_BURST,
    C_FETCH_BUFFER, C_ARRAY, C_MATRIX_LATENCY, C_ACCUMULATE_LATENCY, C_VECTOR_LATENCY,
    C_STORE_READ_LATENCY, C_PARAMETER_HOLD, C_COUNT,
) = range(15)  # fmt: skip

# columns of the instruction table; those from 6 on depend on the engine
I_ENGINE, I_DRAIN, I_WAIT, I_SIGNAL, I_READ_PORTS, I_WRITE_PORTS, I_COUNT = 0, 1, 2, 3, 4, 5, 17
(
    I_PLANES, I_ROWS, I_ROW_BYTES, I_PLANE_STRIDE, I_ROW_STRIDE, I_ADDRESS, I_WORD_BYTES,
    I_PAD_TOP, I_PAD_BOTTOM, I_PAD_LEFT, I_PAD_RIGHT,
) = range(6, 17)  # fmt: skip
I_STEPS, I_WORDS = 6, 7
I_BLOCKS, I_HEAD, I_PARAMETERS, I_STREAM, I_TABLE = 6, 7, 8, 9, 10

# columns of the schedule: cycles of each instruction, and how long it waited
S_QUEUE, S_ISSUE, S_START, S_END, S_TOKEN_WAIT, S_PORT_WAIT, S_DRAM_WAIT, S_COUNT = range(8)

# counters that are counted here; the others are sums over the schedule
(N_CYCLES, N_FETCH_STALL, N_READ_BEATS, N_WRITE_BEATS) = 0, 17, 18, 19
N_BUSY = (1, 5, 9, 13)
N_LOAD_DRAM, N_STORE_DRAM, N_COUNT = 4, 16, 20

RING = 64

# whose read address is on the bus
NOBODY, FETCH, LOAD = 0, 1, 2


@njit
def _burst(address, remaining, bus, max_burst):
    """Bytes of the burst that begins at `address`: ends at the row, `max_burst` beats, or 4 KiB."""
    size = remaining
    beats_end = address // bus * bus + max_burst * bus - address
    page_end = 4096 - address % 4096
    if size > beats_end:
        size = beats_end
    if size > page_end:
        size = page_end
    return size


@njit
def _transfer(row, plane, line, done, bus, max_burst):
    """(address, bytes, beats, words of its first and of its last beat) of the burst of a LOAD's or STORE's row."""
    address = row[I_ADDRESS] + plane * row[I_PLANE_STRIDE] + line * row[I_ROW_STRIDE] + done
    size = _burst(address, row[I_ROW_BYTES] - done, bus, max_burst)
    beats = (address % bus + size + bus - 1) // bus
    word_bytes = row[I_WORD_BYTES]
    if word_bytes >= bus:
        return address, size, beats, np.int64(1), np.int64(1)
    end = (address + size) % bus
    if end == 0:
        end = np.int64(bus)
    return address, size, beats, min(bus - address % bus, size) // word_bytes, min(end, size) // word_bytes


@njit
def _after(row, plane, line, done):
    """(plane, row, bytes done of it) after a burst; the plane is past the last one at the end."""
    if done < row[I_ROW_BYTES]:
        return plane, line, done
    line += 1
    if line < row[I_ROWS]:
        return plane, line, np.int64(0)
    return plane + 1, np.int64(0), np.int64(0)


@njit
def _end_load(schedule, counters, index, end, slots, last_end):
    """A LOAD's last slot is in the cycle before `end`."""
    start = schedule[index, S_START]
    waited = end - 1 - start - slots
    schedule[index, S_END] = end
    schedule[index, S_DRAM_WAIT] = waited
    counters[N_LOAD_DRAM] += waited
    counters[N_BUSY[0]] += end - max(start, last_end[0] + 1) + 1
    last_end[0] = end


@njit
def _end_store(schedule, counters, index, end, beats, last_end):
    """A STORE's last response is in cycle `end`."""
    start = schedule[index, S_START]
    busy = end - max(start, last_end[3] + 1) + 1
    counters[N_BUSY[3]] += busy
    counters[N_STORE_DRAM] += busy - beats
    schedule[index, S_END] = end
    schedule[index, S_DRAM_WAIT] = end - start + 1 - beats
    last_end[3] = end


@njit
def _ports_free(mask, engine, held):
    """Whether no other engine holds a port of the mask."""
    for other in range(4):
        if other != engine and held[other] & mask != 0:
            return False
    return True


@njit
def _take(mask, engine, held, holds):
    held[engine] |= mask
    for port in range(64):
        if (mask >> port) & 1:
            holds[port] += 1


@njit
def _release(mask, engine, held, holds):
    for port in range(64):
        if (mask >> port) & 1:
            holds[port] -= 1
            if holds[port] == 0:
                held[engine] &= ~(np.int64(1) << port)


@njit
def simulate(constants, chip, table, schedule, counters):
    """Run a program's timing.

    constants: int64[C_COUNT]; chip: int64[sdram.P_COUNT] of an SDRAM, or nothing for the reference DRAM;
    table: int64[instructions, I_COUNT], END last and not in the table's engines (ENGINE = 4); schedule:
    int64[instructions, S_COUNT], written; counters: int64[COUNTER_COUNT], written in the order of
    `isa.registers.COUNTERS`.
    Returns -1, or the number of the first instruction that can never issue.
    """
    latency = constants[C_LATENCY]
    read_limit = constants[C_READ_BURSTS]
    write_limit = constants[C_WRITE_BURSTS]
    queue_depth = constants[C_QUEUE_DEPTH]
    bus = constants[C_BUS_BYTES]
    max_burst = constants[C_MAX_BURST]
    fetch_burst = constants[C_FETCH_BURST]
    fetch_buffer = constants[C_FETCH_BUFFER]
    array = constants[C_ARRAY]
    matrix_latency = constants[C_MATRIX_LATENCY]
    accumulate_latency = constants[C_ACCUMULATE_LATENCY]
    vector_latency = constants[C_VECTOR_LATENCY]
    read_latency = constants[C_STORE_READ_LATENCY]
    parameter_hold = constants[C_PARAMETER_HOLD]

    total = table.shape[0]
    last = total - 1

    # each engine's instructions, in order
    order = np.empty((4, total), np.int64)
    length = np.zeros(4, np.int64)
    for index in range(last):
        engine = table[index, I_ENGINE]
        order[engine, length[engine]] = index
        length[engine] += 1
    issued = np.zeros(4, np.int64)  # instructions issued, per engine
    started = np.zeros(4, np.int64)
    ended = np.zeros(4, np.int64)  # ends that are visible
    queued = np.zeros(4, np.int64)
    tokens = np.zeros((4, 4), np.int64)  # [from, to]
    front_free = np.zeros(4, np.int64)  # first cycle in which the next instruction may issue
    pending_since = np.zeros(4, np.int64)  # first cycle in which in-flight instructions left room
    held = np.zeros(4, np.int64)
    holds = np.zeros(64, np.int64)
    last_end = np.full(4, -1, np.int64)  # latest end, for the union of busy cycles

    # scheduled: end of reads (ports), end of instructions; per engine in time order
    read_done = np.zeros((4, total), np.int64)
    read_head = np.zeros(4, np.int64)
    read_tail = np.zeros(4, np.int64)
    end_tail = np.zeros(4, np.int64)

    # FETCH
    arrival = np.full(total, NEVER)
    fetch_asked = 0
    fetch_from = np.int64(1)
    dispatched = 0
    dispatch_from = np.int64(0)

    # read channel: bursts accepted and not finished, in order
    burst_owner = np.zeros(RING, np.int64)  # -1 FETCH, else the LOAD's number among LOADs
    burst_accept = np.zeros(RING, np.int64)
    burst_beats = np.zeros(RING, np.int64)
    burst_slots = np.zeros(RING, np.int64)
    burst_tail_words = np.zeros(RING, np.int64)
    burst_before = np.zeros(RING, np.int64)
    burst_after = np.zeros(RING, np.int64)
    burst_first = np.zeros(RING, np.int64)  # FETCH: first instruction; LOAD: 1 if its last burst
    burst_count = np.zeros(RING, np.int64)  # FETCH: instructions
    burst_head_words = np.zeros(RING, np.int64)
    burst_done = np.zeros(RING, np.int64)
    accepted = 0
    computed = 0
    finished = 0
    channel_end = np.int64(-1)  # cycle of the last beat so far
    address_owner = NOBODY

    # LOAD: requests
    load_row = np.int64(0)
    load_plane = np.int64(0)
    load_done_bytes = np.int64(0)
    load_requests_from = np.int64(0)
    load_requesting = False
    # LOAD: writer
    writer_cursor = np.int64(0)
    writer_slots = np.int64(0)
    writer_active = False
    writer_free = np.int64(0)

    # MATRIX
    weights_free = np.int64(0)  # first cycle in which the next tile may be read
    weights_first = np.int64(0)  # of the issued instruction that has not started
    stream_free = np.int64(0)  # first cycle of the next instruction's stream
    matrix_waiting = False

    # VECTOR
    load_from = np.int64(0)
    ready = np.int64(0)
    vector_stream_end = -parameter_hold  # nothing has streamed yet
    # two sets of parameters: a new one replaces the older, once its last word has streamed
    newer_set_end = -parameter_hold
    older_set_end = -parameter_hold
    vector_waiting = False

    # STORE
    store_free = np.int64(0)
    store_ready = np.int64(0)
    store_waiting = False
    store_active = False
    store_row = np.int64(0)
    store_plane = np.int64(0)
    store_done_bytes = np.int64(0)
    store_address_from = np.int64(0)
    store_cursor = np.int64(0)
    store_beats = np.int64(0)
    response = np.zeros(RING, np.int64)
    write_accepted = 0
    write_finished = 0
    response_last = np.int64(-1)

    # SDRAM: its controller, beats that are read or on their way, and the burst that STORE sends
    is_sdram = chip.shape[0] > 0
    controller = np.zeros(sdram.Q_COUNT, np.int64)
    beat_ready = np.zeros(RING, np.int64)  # first cycle in which it can be taken
    beats_asked = 0
    beats_taken = 0
    beat_of_burst = np.int64(0)
    sending = np.int64(0)  # beats of STORE's burst that it has not sent
    sending_from = np.int64(0)
    sending_first = True
    sending_head = np.int64(0)
    sending_tail = np.int64(0)
    sending_index = np.int64(0)
    sending_last = False  # the burst is its STORE's last
    if is_sdram:
        controller[sdram.Q_ROW :] = sdram.CLOSED
        controller[sdram.Q_INTERVAL] = chip[sdram.P_PHASE]
        controller[sdram.Q_ROOM] = chip[sdram.P_READ_BUFFER]

    now = np.int64(0)
    while True:
        changed = False
        wake = NEVER

        # ---- what ended becomes visible one cycle later
        for engine in range(4):
            while read_head[engine] < read_tail[engine]:
                when = read_done[engine, read_head[engine]] + 1
                if when > now:
                    wake = min(wake, when)
                    break
                index = order[engine, read_head[engine]]
                _release(table[index, I_READ_PORTS], engine, held, holds)
                read_head[engine] += 1
            while ended[engine] < end_tail[engine]:
                index = order[engine, ended[engine]]
                when = schedule[index, S_END] + 1
                if when > now:
                    wake = min(wake, when)
                    break
                _release(table[index, I_WRITE_PORTS], engine, held, holds)
                signal = table[index, I_SIGNAL]
                for other in range(4):
                    if (signal >> other) & 1:
                        tokens[engine, other] += 1
                ended[engine] += 1
                if issued[engine] - ended[engine] == queue_depth - 1:
                    pending_since[engine] = when
        while finished < computed:
            when = burst_done[finished % RING] + 1
            if when > now:
                wake = min(wake, when)
                break
            finished += 1
        while write_finished < write_accepted:
            when = response[write_finished % RING] + 1
            if when > now:
                wake = min(wake, when)
                break
            write_finished += 1

        # ---- FETCH hands one instruction a cycle to its queue
        dispatched_before = dispatched
        if dispatched < fetch_asked:
            when = max(arrival[dispatched], dispatch_from)
            if arrival[dispatched] == NEVER:
                pass
            elif when > now:
                wake = min(wake, when)
            elif dispatched == last:
                if ended[0] + ended[1] + ended[2] + ended[3] == last:
                    schedule[last, S_QUEUE] = now
                    schedule[last, S_ISSUE] = now
                    schedule[last, S_START] = now
                    schedule[last, S_END] = now
                    counters[N_CYCLES] = now + 1
                    return -1
            else:
                engine = table[dispatched, I_ENGINE]
                if queued[engine] - issued[engine] < queue_depth:
                    schedule[dispatched, S_QUEUE] = now
                    counters[N_FETCH_STALL] += now - when
                    queued[engine] += 1
                    dispatched += 1
                    dispatch_from = now + 1
                    changed = True

        # ---- LOAD: the write side starts, in order
        if started[0] < issued[0] and not writer_active:
            index = order[0, started[0]]
            when = max(writer_free, schedule[index, S_ISSUE] + 1)
            if when > now:
                wake = min(wake, when)
            elif _ports_free(table[index, I_WRITE_PORTS], 0, held):
                _take(table[index, I_WRITE_PORTS], 0, held, holds)
                schedule[index, S_START] = now
                schedule[index, S_PORT_WAIT] = now - when
                started[0] += 1
                writer_active = True
                writer_cursor = now + 1
                writer_slots = 0
                changed = True

        # ---- MATRIX: stream
        if matrix_waiting:
            index = order[1, started[1]]
            when = max(weights_first, stream_free - 1)
            ports = table[index, I_READ_PORTS] | table[index, I_WRITE_PORTS]
            if when > now:
                wake = min(wake, when)
            elif _ports_free(ports, 1, held):
                _take(ports, 1, held, holds)
                schedule[index, S_START] = now
                schedule[index, S_PORT_WAIT] = now - when
                words = table[index, I_WORDS]
                gap = max(words, accumulate_latency)
                weights = weights_first
                stream = now + 1
                for _ in range(1, table[index, I_STEPS]):
                    weights = max(weights + array, stream)
                    stream = max(weights + 1, stream + gap)
                weights_free = max(weights + array, stream)
                front_free[1] = max(weights_free - 1, now + 1)
                stream_free = stream + gap
                read_done[1, read_tail[1]] = stream + words - 1
                read_tail[1] += 1
                end = stream + words - 1 + matrix_latency
                schedule[index, S_END] = end
                end_tail[1] += 1
                counters[N_BUSY[1]] += end - max(now, last_end[1] + 1) + 1
                last_end[1] = end
                started[1] += 1
                matrix_waiting = False
                changed = True

        # ---- VECTOR: stream
        if vector_waiting:
            index = order[2, started[2]]
            when = max(ready - 1, vector_stream_end, schedule[index, S_ISSUE] + 1)
            ports = table[index, I_READ_PORTS] | table[index, I_WRITE_PORTS]
            if when > now:
                wake = min(wake, when)
            elif _ports_free(ports, 2, held):
                _take(ports, 2, held, holds)
                schedule[index, S_START] = now
                schedule[index, S_PORT_WAIT] = now - when
                cost = table[index, I_STREAM]
                parameters = table[index, I_PARAMETERS]
                uses_set = parameters + table[index, I_HEAD] > 0
                vector_stream_end = now + cost
                if uses_set:
                    newer_set_end = vector_stream_end
                for _ in range(1, table[index, I_BLOCKS]):
                    begin = vector_stream_end + 1
                    if parameters > 0:
                        load_from = max(load_from, older_set_end + parameter_hold) + parameters
                        begin = max(begin, load_from + 2)
                        older_set_end = newer_set_end
                    vector_stream_end = begin + cost - 1
                    if uses_set:
                        newer_set_end = vector_stream_end
                front_free[2] = max(load_from - 1, now + 1)
                read_done[2, read_tail[2]] = vector_stream_end
                read_tail[2] += 1
                end = vector_stream_end + vector_latency
                schedule[index, S_END] = end
                end_tail[2] += 1
                counters[N_BUSY[2]] += end - max(now, last_end[2] + 1) + 1
                last_end[2] = end
                started[2] += 1
                vector_waiting = False
                changed = True

        # ---- STORE: the read side starts
        if store_waiting and not store_active:
            index = order[3, started[3]]
            when = max(store_ready, store_free)
            if when > now:
                wake = min(wake, when)
            elif _ports_free(table[index, I_READ_PORTS], 3, held):
                _take(table[index, I_READ_PORTS], 3, held, holds)
                schedule[index, S_START] = now
                schedule[index, S_PORT_WAIT] = now - when
                started[3] += 1
                front_free[3] = now + 1
                store_waiting = False
                store_active = True
                store_row = 0
                store_plane = 0
                store_done_bytes = 0
                store_beats = 0
                store_address_from = now + 1
                store_cursor = now + read_latency
                changed = True

        # ---- STORE: one address a cycle; its data follow
        if store_active and not is_sdram:
            index = order[3, started[3] - 1]
            if store_address_from > now:
                wake = min(wake, store_address_from)
            elif write_accepted - write_finished < write_limit:
                row = table[index]
                _, size, beats, head_words, _ = _transfer(row, store_plane, store_row, store_done_bytes, bus, max_burst)
                rest = beats - 1 if row[I_WORD_BYTES] >= bus else size // row[I_WORD_BYTES] - head_words
                store_cursor = max(now + 1, store_cursor + head_words) + rest
                store_beats += beats
                counters[N_WRITE_BEATS] += beats
                response_last = max(store_cursor + latency, response_last + 1)
                response[write_accepted % RING] = response_last
                write_accepted += 1
                store_address_from = now + 1
                store_plane, store_row, store_done_bytes = _after(row, store_plane, store_row, store_done_bytes + size)
                if store_plane == row[I_PLANES]:
                    store_active = False
                    store_free = store_cursor + 1
                    read_done[3, read_tail[3]] = store_cursor
                    read_tail[3] += 1
                    _end_store(schedule, counters, index, response_last, store_beats, last_end)
                    end_tail[3] += 1
                changed = True

        # ---- issue: tokens taken, the front begins
        for engine in range(4):
            if issued[engine] == queued[engine]:
                continue
            index = order[engine, issued[engine]]
            if (engine == 1 and matrix_waiting) or (engine == 2 and vector_waiting):
                continue
            if (engine == 0 and load_requesting) or (engine == 3 and store_waiting):
                continue
            if (engine == 0 or engine == 3) and issued[engine] - ended[engine] >= queue_depth:
                continue
            when = max(schedule[index, S_QUEUE] + 1, front_free[engine])
            if engine == 0 or engine == 3:
                when = max(when, pending_since[engine])
            if when > now:
                wake = min(wake, when)
                continue
            wait = table[index, I_WAIT]
            free = True
            for other in range(4):
                if (wait >> other) & 1 and tokens[other, engine] == 0:
                    free = False
            if table[index, I_DRAIN] and ended[engine] < issued[engine]:
                free = False
            if not free:
                continue
            for other in range(4):
                if (wait >> other) & 1:
                    tokens[other, engine] -= 1
            schedule[index, S_ISSUE] = now
            schedule[index, S_TOKEN_WAIT] = now - when
            issued[engine] += 1
            changed = True
            if engine == 0:
                load_requesting = True
                load_requests_from = now + 1
                load_row = 0
                load_plane = 0
                load_done_bytes = 0
            elif engine == 1:
                weights_first = max(now + 1, weights_free)
                matrix_waiting = True
            elif engine == 2:
                load_from = max(load_from, now + 1)
                ready = load_from
                words = table[index, I_HEAD] + table[index, I_PARAMETERS]
                if words > 0:
                    load_from = max(load_from, older_set_end + parameter_hold)
                    if table[index, I_TABLE] > 0:
                        load_from = max(load_from, vector_stream_end + parameter_hold)
                        words = max(words, table[index, I_TABLE])
                    load_from += words
                    ready = load_from + 2
                    older_set_end = newer_set_end
                vector_waiting = True
            else:
                store_ready = now + 1
                store_waiting = True

        # ---- read addresses: FETCH before LOAD; one that the DRAM does not accept yet stays (AXI)
        want = min(fetch_burst, total - fetch_asked)
        if address_owner == NOBODY:
            if want > 0 and fetch_asked - dispatched_before + want <= fetch_buffer:
                if fetch_from > now:
                    wake = min(wake, fetch_from)
                else:
                    address_owner = FETCH
            if address_owner == NOBODY and load_requesting:
                if load_requests_from > now:
                    wake = min(wake, load_requests_from)
                else:
                    address_owner = LOAD
        read_taken = address_owner != NOBODY and accepted - finished < read_limit
        if is_sdram:
            # the beat that comes first, if it is there and wanted
            popped = False
            if beats_taken < beats_asked:
                slot = computed % RING
                if beat_ready[beats_taken % RING] > now:
                    wake = min(wake, beat_ready[beats_taken % RING])
                elif burst_owner[slot] < 0:
                    popped = True
                    for step in range(burst_count[slot]):
                        if ((step + 1) * 32 + bus - 1) // bus - 1 == beat_of_burst:
                            arrival[burst_first[slot] + step] = now + 1
                elif writer_active and burst_owner[slot] == started[0] - 1:
                    if beat_of_burst == 0 and burst_before[slot] > 0:
                        writer_cursor += burst_before[slot]
                        writer_slots += burst_before[slot]
                        burst_before[slot] = 0
                    if writer_cursor > now:
                        wake = min(wake, writer_cursor)
                    else:
                        popped = True
                        words = burst_tail_words[slot]
                        if beat_of_burst == 0:
                            words = burst_head_words[slot]
                        elif beat_of_burst < burst_beats[slot] - 1:
                            words = max(1, bus // table[order[0, started[0] - 1], I_WORD_BYTES])
                        writer_cursor = now + words
                        writer_slots += words
            if popped:
                beats_taken += 1
                beat_of_burst += 1
                if beat_of_burst == burst_beats[slot]:
                    beat_of_burst = 0
                    burst_done[slot] = now
                    computed += 1
                    if burst_owner[slot] >= 0:
                        writer_cursor += burst_after[slot]
                        writer_slots += burst_after[slot]
                        if burst_first[slot]:
                            index = order[0, started[0] - 1]
                            _end_load(schedule, counters, index, writer_cursor, writer_slots, last_end)
                            writer_free = writer_cursor
                            writer_active = False
                            end_tail[0] += 1

            # STORE's beat, and the address of its next burst behind the last one's data
            pushed = False
            write_presented = False
            write_beat = np.int64(0)
            write_beats = np.int64(0)
            write_size = np.int64(0)
            if sending > 0 and sending_from <= now:
                words = sending_tail if sending == 1 else max(1, bus // table[sending_index, I_WORD_BYTES])
                if sending_first:
                    words = sending_head
                if store_cursor + words > now:
                    wake = min(wake, store_cursor + words)
                elif controller[sdram.Q_WRITTEN] < chip[sdram.P_WRITE_BUFFER]:
                    pushed = True
                    store_cursor = now
                    sending -= 1
                    sending_first = False
                    if sending == 0:
                        store_address_from = now + 1
                        if sending_last:
                            store_active = False
                            store_free = now + 1
                            read_done[3, read_tail[3]] = now
                            read_tail[3] += 1
                            schedule[sending_index, S_DRAM_WAIT] = store_beats
            elif store_active and sending == 0:
                if store_address_from > now:
                    wake = min(wake, store_address_from)
                else:
                    write_presented = True
                    row = table[order[3, started[3] - 1]]
                    address, write_size, write_beats, head_words, tail_words = _transfer(
                        row, store_plane, store_row, store_done_bytes, bus, max_burst
                    )
                    write_beat = (chip[sdram.P_BASE] + address) // bus

            read_beat = np.int64(0)
            read_beats = np.int64(0)
            if address_owner == FETCH:
                read_beat = (chip[sdram.P_PROGRAM] + fetch_asked * 32) // bus
                read_beats = (want * 32 + bus - 1) // bus
            elif address_owner == LOAD:
                address, _, read_beats, _, _ = _transfer(
                    table[order[0, issued[0] - 1]], load_plane, load_row, load_done_bytes, bus, max_burst
                )
                read_beat = (chip[sdram.P_BASE] + address) // bus
            happened = sdram.step(
                chip, controller, address_owner != NOBODY, read_beat, read_beats - 1,
                write_presented, write_beat, write_beats - 1, popped, pushed,
            )  # fmt: skip
            read_taken = happened & sdram.AR_TAKEN != 0
            if happened & sdram.READ_GOES:
                beat_ready[beats_asked % RING] = now + chip[sdram.P_FIRST_BEAT]
                beats_asked += 1
            if happened & sdram.AW_TAKEN:
                sending_index = order[3, started[3] - 1]
                row = table[sending_index]
                sending = write_beats
                sending_from = now + 1
                sending_first = True
                sending_head = head_words
                sending_tail = tail_words
                store_beats += write_beats
                counters[N_WRITE_BEATS] += write_beats
                store_plane, store_row, store_done_bytes = _after(
                    row, store_plane, store_row, store_done_bytes + write_size
                )
                sending_last = store_plane == row[I_PLANES]
            if happened & sdram.WRITE_GOES and happened & sdram.LAST and sending_last:
                # the burst that goes is the one that was sent last: none is accepted before it is done
                beats = schedule[sending_index, S_DRAM_WAIT]
                _end_store(schedule, counters, sending_index, now + 1, beats, last_end)
                end_tail[3] += 1
            if happened != 0 or popped or pushed:
                changed = True
        if read_taken:
            slot = accepted % RING
            burst_accept[slot] = now
            if address_owner == FETCH:
                burst_owner[slot] = -1
                burst_beats[slot] = (want * 32 + bus - 1) // bus
                burst_first[slot] = fetch_asked
                burst_count[slot] = want
                counters[N_READ_BEATS] += burst_beats[slot]
                fetch_asked += want
                fetch_from = now + 1
            else:
                index = order[0, issued[0] - 1]
                row_bytes = table[index, I_ROW_BYTES]
                word_bytes = table[index, I_WORD_BYTES]
                address, size, beats, head_words, tail_words = _transfer(
                    table[index], load_plane, load_row, load_done_bytes, bus, max_burst
                )
                burst_owner[slot] = issued[0] - 1
                burst_beats[slot] = beats
                counters[N_READ_BEATS] += beats
                burst_slots[slot] = beats if word_bytes >= bus else size // word_bytes
                burst_head_words[slot] = head_words
                burst_tail_words[slot] = tail_words
                left, right = table[index, I_PAD_LEFT], table[index, I_PAD_RIGHT]
                row_slots = left + right + row_bytes // word_bytes
                before = np.int64(0)
                after = np.int64(0)
                if load_done_bytes == 0:
                    before = left
                    if load_row == 0:
                        before += table[index, I_PAD_TOP] * row_slots
                load_done_bytes += size
                burst_first[slot] = 0
                if load_done_bytes == row_bytes:
                    after = right
                    load_done_bytes = 0
                    load_row += 1
                    if load_row == table[index, I_ROWS]:
                        after += table[index, I_PAD_BOTTOM] * row_slots
                        load_row = 0
                        load_plane += 1
                        if load_plane == table[index, I_PLANES]:
                            load_requesting = False
                            front_free[0] = now + 1
                            burst_first[slot] = 1
                burst_before[slot] = before
                burst_after[slot] = after
                load_requests_from = now + 1
            accepted += 1
            address_owner = NOBODY
            changed = True

        # ---- read data: bursts whose consumer is there, in order
        while computed < accepted and not is_sdram:
            slot = computed % RING
            begin = max(burst_accept[slot] + latency, channel_end + 1)
            if burst_owner[slot] < 0:
                channel_end = begin + burst_beats[slot] - 1
                burst_done[slot] = channel_end
                for step in range(burst_count[slot]):
                    arrival[burst_first[slot] + step] = begin + ((step + 1) * 32 + bus - 1) // bus
            else:
                if not writer_active or burst_owner[slot] != started[0] - 1:
                    break
                index = order[0, started[0] - 1]
                begin = max(begin, writer_cursor + burst_before[slot])
                writer_cursor = begin + burst_slots[slot] + burst_after[slot]
                channel_end = begin + burst_slots[slot] - burst_tail_words[slot]
                burst_done[slot] = channel_end
                writer_slots += burst_before[slot] + burst_slots[slot] + burst_after[slot]
                if burst_first[slot]:
                    _end_load(schedule, counters, index, writer_cursor, writer_slots, last_end)
                    writer_free = writer_cursor
                    writer_active = False
                    end_tail[0] += 1
            computed += 1
            changed = True

        if changed:
            now += 1
        elif wake < NEVER:
            if is_sdram:  # of the controller's registers only the refresh interval goes on meanwhile
                wake = min(wake, now + 1 + controller[sdram.Q_INTERVAL])
                controller[sdram.Q_INTERVAL] -= wake - (now + 1)
            now = wake
        else:
            for engine in range(4):
                if issued[engine] < queued[engine]:
                    return order[engine, issued[engine]]
            return dispatched
