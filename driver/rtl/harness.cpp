// What stands around the Verilated core: reference DRAM, protocol monitor, register bus, trace.
//
// docs/timing.md, section 6, specifies the DRAM. All of its signals are functions of registered
// state, so a cycle is: drive the inputs, evaluate with the clock low (what is combinational settles),
// look at the transfers of this cycle, evaluate the rising edge that ends it.
//
// NPU_BUS_BYTES and NPU_MAX_BURST come from the configuration.

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "Vnpu.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

#define NPU_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint64_t kBus = NPU_BUS_BYTES;
constexpr int kMaxBurst = NPU_MAX_BURST;
constexpr int kSize = kBus == 4 ? 2 : kBus == 8 ? 3 : kBus == 16 ? 4 : kBus == 32 ? 5 : 6;
constexpr int kIncrementing = 1;
constexpr int kOkay = 0;
constexpr int kSlaveError = 2;
constexpr int kDecodeError = 3;
constexpr uint64_t kPage = 4096;
constexpr int kEngines = 4;
constexpr int kEvents = 4;
constexpr int kRegisterCycles = 10000;  // more than any answer of the register bus may take

// What can be stalled; driver/surroundings.py has the same order.
enum Channel { kAr, kR, kAw, kW, kB, kRegisters };

// Ports wider than 64 bits are arrays of words, least significant first; on a little-endian host all
// port types have the bytes of the bus in order.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the harness needs a little-endian host");

template <typename Port>
void set_bytes(Port& port, const uint8_t* bytes) {
    static_assert(sizeof(Port) == kBus, "the core's bus is not NPU_BUS_BYTES wide");
    std::memcpy(&port, bytes, kBus);
}

template <typename Port>
void get_bytes(const Port& port, uint8_t* bytes) {
    static_assert(sizeof(Port) == kBus, "the core's bus is not NPU_BUS_BYTES wide");
    std::memcpy(bytes, &port, kBus);
}

struct Burst {
    uint64_t address;   // as on the bus; beats lie at multiples of kBus
    int beats;
    int moved = 0;      // beats transferred
    uint64_t due = 0;   // read: first beat; write: response, once all beats are there
    int response = kOkay;
    int wrong_beat = -1;  // of a read: the beat that carries the response; -1: none does
};

// A channel's valid and payload, to see that they hold until ready.
class Held {
public:
    template <typename... Fields>
    bool changed(bool valid, bool ready, const Fields&... fields) {
        if (!waiting_ && (!valid || ready)) return false;
        uint8_t now[kBus + 64] = {};
        size_t size = 0;
        (append(now, size, fields), ...);
        const bool broken = waiting_ && (!valid || std::memcmp(now, before_, size) != 0);
        waiting_ = valid && !ready;
        if (waiting_) std::memcpy(before_, now, size);
        return broken;
    }
    void clear() { waiting_ = false; }

private:
    template <typename Field>
    static void append(uint8_t* bytes, size_t& size, const Field& field) {
        std::memcpy(bytes + size, &field, sizeof(Field));
        size += sizeof(Field);
    }
    bool waiting_ = false;
    uint8_t before_[kBus + 64];
};

class Harness {
public:
    Harness() : context_(new VerilatedContext), core_(new Vnpu(context_.get(), "npu")) { reset(); }

    ~Harness() {
        close_vcd();
        core_->final();
    }

    void set_dram(uint64_t latency, int reads, int writes, uint8_t* memory, uint64_t size) {
        latency_ = latency;
        read_limit_ = size_t(reads);
        write_limit_ = size_t(writes);
        memory_ = memory;
        memory_size_ = size;
    }

    // The memory's first byte is at this address of the bus.
    void set_origin(uint64_t origin) { origin_ = origin; }

    // `stalled`: a bit for each channel, in the order of Channel.
    void surround(uint64_t seed, int stall_percent, int stalled, uint64_t spread, int errors_per_mille) {
        random_ = seed * 0x9E3779B97F4A7C15u + 1;
        stall_percent_ = stall_percent;
        stalled_ = stalled;
        spread_ = spread;
        errors_per_mille_ = errors_per_mille;
    }

    void reset() {
        core_->rst = 1;
        core_->s_axil_awvalid = core_->s_axil_wvalid = core_->s_axil_bready = 0;
        core_->s_axil_arvalid = core_->s_axil_rready = 0;
        reads_.clear();
        writes_.clear();
        complete_writes_ = 0;
        read_offered_ = response_offered_ = false;
        taken_ = {};
        for (Held* held : {&held_ar_, &held_aw_, &held_w_, &held_s_b_, &held_s_r_}) held->clear();
        for (int i = 0; i < 3; ++i) step();
        core_->rst = 0;
    }

    // One register transaction; the response, or -1 when none comes. In surroundings that stall, every other write is
    // followed by one of no byte, and every other read by another, which are offered before the first is answered.
    int write_register(uint32_t offset, uint32_t value) {
        const int wanted = another();
        int addresses = 0, data = 0, answers = 0;
        core_->s_axil_awaddr = offset;
        core_->s_axil_awprot = 0;
        core_->s_axil_wdata = value;
        core_->s_axil_wstrb = 0xF;
        int response = -1;
        for (int i = 0; i < kRegisterCycles && answers < wanted; ++i) {
            core_->s_axil_awvalid = addresses < wanted && ((core_->s_axil_awvalid && !seen_.aw) || !stall(kRegisters));
            core_->s_axil_wvalid = data < wanted && ((core_->s_axil_wvalid && !seen_.w) || !stall(kRegisters));
            core_->s_axil_bready = !stall(kRegisters);
            step();
            addresses += seen_.aw;
            data += seen_.w;
            if (seen_.w) core_->s_axil_wstrb = 0;
            if (seen_.b && ++answers == 1) response = seen_.response;
        }
        core_->s_axil_awvalid = core_->s_axil_wvalid = core_->s_axil_bready = 0;
        return answers == wanted ? response : -1;
    }

    int read_register(uint32_t offset, uint32_t* value) {
        const int wanted = another();
        int addresses = 0, answers = 0;
        core_->s_axil_araddr = offset;
        core_->s_axil_arprot = 0;
        int response = -1;
        for (int i = 0; i < kRegisterCycles && answers < wanted; ++i) {
            core_->s_axil_arvalid = addresses < wanted && ((core_->s_axil_arvalid && !seen_.ar) || !stall(kRegisters));
            core_->s_axil_rready = !stall(kRegisters);
            step();
            addresses += seen_.ar;
            if (seen_.r) {
                ++answers;
                response = seen_.response;
                *value = seen_.data;
            }
        }
        core_->s_axil_arvalid = core_->s_axil_rready = 0;
        return answers == wanted ? response : -1;
    }

    // Steps while the core runs; stops at a violation.
    int64_t run(int64_t cycles) {
        const size_t violations = violations_;
        int64_t done = 0;
        for (; done < cycles && core_->trace_running && violations_ == violations; ++done) step();
        if (was_running_ && !core_->trace_running) step();  // the first cycle of done, for its checks
        return done;
    }

    bool running() const { return core_->trace_running; }
    bool interrupt() const { return core_->irq; }
    // Cycles of this run so far: those from cycle 0 to the last that was stepped.
    int64_t cycles() const { return run_cycle_ + 1; }
    int64_t last_activity() const { return last_activity_; }
    const std::vector<int64_t>& trace(int engine, int event) const { return trace_[engine][event]; }
    const char* violation() const { return violation_.c_str(); }
    void clear_violation() {
        violation_.clear();
        violations_ = 0;
    }

    bool open_vcd(const char* path, int64_t first, int64_t last) {
#if VM_TRACE
        close_vcd();
        context_->traceEverOn(true);
        vcd_.reset(new VerilatedVcdC);
        core_->trace(vcd_.get(), 99);
        vcd_->open(path);
        vcd_first_ = first;
        vcd_last_ = last;
        vcd_origin_ = 0;
        vcd_next_ = 0;
        return vcd_->isOpen();
#else
        (void)path, (void)first, (void)last;
        return false;
#endif
    }

    void flush_vcd() {
#if VM_TRACE
        if (vcd_) vcd_->flush();
#endif
    }

    void close_vcd() {
#if VM_TRACE
        if (vcd_) vcd_->close();
        vcd_.reset();
#endif
    }

private:
    // xorshift64*: a random number below `count`
    uint64_t draw(uint64_t count) {
        random_ ^= random_ >> 12;
        random_ ^= random_ << 25;
        random_ ^= random_ >> 27;
        return (random_ * 0x2545F4914F6CDD1Du >> 33) % count;
    }

    // How many register transactions to make of one.
    int another() { return stall_percent_ && draw(2) ? 2 : 1; }

    bool stall(Channel channel) {
        return stall_percent_ && (stalled_ >> channel & 1) && int(draw(100)) < stall_percent_;
    }

    // From a burst's address or last beat until it is answered.
    uint64_t latency() { return latency_ + (spread_ ? draw(spread_ + 1) : 0); }

    // Plants an error in a burst, now and then.
    void spoil(Burst& burst) {
        if (!errors_per_mille_ || int(draw(1000)) >= errors_per_mille_) return;
        burst.response = draw(2) ? kSlaveError : kDecodeError;
        burst.wrong_beat = int(draw(uint64_t(burst.beats)));
    }

    void step() {
        drive();
        clock(0);
        observe();
        dump(0);
        clock(1);
        dump(1);
        ++now_;
    }

    // Half a cycle, in which a clock of twice the rate, where there is one, has an edge as well.
    void clock(int value) {
        core_->clk = value;
#ifdef NPU_FAST_CLOCK
        core_->fast_clk = 1;
        core_->eval();
        core_->fast_clk = 0;
#endif
        core_->eval();
    }

    void drive() {
        core_->m_axi_arready = reads_.size() < read_limit_ && !stall(kAr);
        core_->m_axi_awready = writes_.size() < write_limit_ && !stall(kAw);
        core_->m_axi_wready = complete_writes_ < writes_.size() && !stall(kW);
        drive_read();
        drive_response();
    }

    void drive_read() {
        if (read_offered_) return;  // valid and payload hold until they are taken
        read_offered_ = !reads_.empty() && now_ >= reads_.front().due && !stall(kR);
        core_->m_axi_rvalid = read_offered_;
        if (read_offered_) {
            const Burst& burst = reads_.front();
            const uint64_t address = beat_address(burst);
            const bool outside = !inside(address);
            uint8_t bytes[kBus] = {};
            if (!outside) std::memcpy(bytes, memory_ + (address - origin_), kBus);
            set_bytes(core_->m_axi_rdata, bytes);
            core_->m_axi_rresp = outside ? kSlaveError : burst.moved == burst.wrong_beat ? burst.response : kOkay;
            core_->m_axi_rlast = burst.moved + 1 == burst.beats;
        } else if (stall_percent_) {  // what is not valid may be anything
            uint8_t bytes[kBus];
            std::memset(bytes, 0xA5, kBus);
            set_bytes(core_->m_axi_rdata, bytes);
            core_->m_axi_rresp = 3;
            core_->m_axi_rlast = 1;
        }
        core_->m_axi_rid = 0;
    }

    void drive_response() {
        if (response_offered_) return;
        response_offered_ = complete_writes_ > 0 && now_ >= writes_.front().due && !stall(kB);
        core_->m_axi_bvalid = response_offered_;
        if (response_offered_) {
            core_->m_axi_bresp = writes_.front().response;
        } else if (stall_percent_) {
            core_->m_axi_bresp = 3;
        }
        core_->m_axi_bid = 0;
    }

    void observe() {
        if (core_->rst) {
            if (in_reset_ && (core_->m_axi_arvalid || core_->m_axi_awvalid || core_->m_axi_wvalid ||
                                          core_->s_axil_bvalid || core_->s_axil_rvalid)) {
                violate("a valid is high in reset");
            }
            in_reset_ = true;
            was_running_ = false;
            run_cycle_ = -1;
            return;
        }
        in_reset_ = false;
        observe_trace();
        // in this order: a beat belongs to an address of an earlier cycle
        observe_response();
        observe_write_data();
        observe_write_address();
        observe_read_data();
        observe_read_address();
        observe_registers();
    }

    void observe_trace() {
        const bool running = core_->trace_running;
        if (running && !was_running_) {
            run_cycle_ = -1;
            last_activity_ = 0;
            for (auto& engine : trace_)
                for (auto& event : engine) event.clear();
        }
        if (running) {
            ++run_cycle_;
            const uint8_t events[kEvents] = {core_->trace_queue, core_->trace_issue, core_->trace_start,
                                             core_->trace_end};
            for (int event = 0; event < kEvents; ++event) {
                if (!events[event]) continue;
                last_activity_ = run_cycle_;
                for (int engine = 0; engine < kEngines; ++engine) {
                    if (events[event] >> engine & 1) trace_[engine][event].push_back(run_cycle_);
                }
            }
        } else if (was_running_) {
            if (!was_done_ && !core_->trace_done) violate("trace_running fell without trace_done");
            if (!reads_.empty() || !writes_.empty()) {
                violate("done with %zu read and %zu write bursts in flight", reads_.size(), writes_.size());
            }
        }
        was_running_ = running;
        was_done_ = core_->trace_done;
    }

    void observe_read_address() {
        const bool valid = core_->m_axi_arvalid, ready = core_->m_axi_arready;
        if (held_ar_.changed(valid, ready, core_->m_axi_araddr, core_->m_axi_arlen, core_->m_axi_arsize,
                             core_->m_axi_arburst, core_->m_axi_arid)) {
            violate("a read address changed or went away before it was accepted");
        }
        if (!valid || !ready) return;
        Burst burst{core_->m_axi_araddr, core_->m_axi_arlen + 1};
        check_burst("read", burst, core_->m_axi_arsize, core_->m_axi_arburst);
        spoil(burst);
        burst.due = now_ + latency();
        reads_.push_back(burst);
        last_activity_ = run_cycle_;
    }

    void observe_read_data() {
        if (!read_offered_ || !core_->m_axi_rready) return;
        read_offered_ = false;
        last_activity_ = run_cycle_;
        Burst& burst = reads_.front();
        if (++burst.moved == burst.beats) reads_.pop_front();
    }

    void observe_write_address() {
        const bool valid = core_->m_axi_awvalid, ready = core_->m_axi_awready;
        if (held_aw_.changed(valid, ready, core_->m_axi_awaddr, core_->m_axi_awlen, core_->m_axi_awsize,
                             core_->m_axi_awburst, core_->m_axi_awid)) {
            violate("a write address changed or went away before it was accepted");
        }
        if (!valid || !ready) return;
        Burst burst{core_->m_axi_awaddr, core_->m_axi_awlen + 1};
        check_burst("write", burst, core_->m_axi_awsize, core_->m_axi_awburst);
        spoil(burst);
        writes_.push_back(burst);
        last_activity_ = run_cycle_;
    }

    void observe_write_data() {
        const bool valid = core_->m_axi_wvalid, ready = core_->m_axi_wready;
        if (held_w_.changed(valid, ready, core_->m_axi_wdata, core_->m_axi_wstrb, core_->m_axi_wlast)) {
            violate("a write beat changed or went away before it was accepted");
        }
        if (!valid || !ready) return;
        Burst& burst = writes_[complete_writes_];
        const uint64_t strobe = core_->m_axi_wstrb;
        const uint64_t address = beat_address(burst);
        if (!inside(address)) {
            burst.response = kSlaveError;
        } else {
            uint8_t bytes[kBus];
            get_bytes(core_->m_axi_wdata, bytes);
            for (uint64_t i = 0; i < kBus; ++i) {
                if (strobe >> i & 1) memory_[address - origin_ + i] = bytes[i];
            }
        }
        const uint64_t skipped = burst.moved ? 0 : burst.address % kBus;
        if (strobe & ((uint64_t(1) << skipped) - 1)) violate("a strobe below the burst's address is set");
        const bool last = ++burst.moved == burst.beats;
        if (core_->m_axi_wlast != last) {
            violate("WLAST is %d in beat %d of %d", int(core_->m_axi_wlast), burst.moved, burst.beats);
        }
        if (last) {
            burst.due = now_ + latency();
            ++complete_writes_;
        }
        last_activity_ = run_cycle_;
    }

    void observe_response() {
        if (!response_offered_ || !core_->m_axi_bready) return;
        response_offered_ = false;
        last_activity_ = run_cycle_;
        writes_.pop_front();
        --complete_writes_;
    }

    void observe_registers() {
        seen_.aw = core_->s_axil_awvalid && core_->s_axil_awready;
        seen_.w = core_->s_axil_wvalid && core_->s_axil_wready;
        seen_.b = core_->s_axil_bvalid && core_->s_axil_bready;
        seen_.ar = core_->s_axil_arvalid && core_->s_axil_arready;
        seen_.r = core_->s_axil_rvalid && core_->s_axil_rready;
        if (seen_.b) seen_.response = core_->s_axil_bresp;
        if (seen_.r) {
            seen_.response = core_->s_axil_rresp;
            seen_.data = core_->s_axil_rdata;
        }
        if (held_s_b_.changed(core_->s_axil_bvalid, core_->s_axil_bready, core_->s_axil_bresp)) {
            violate("a register's write response changed or went away before it was taken");
        }
        if (held_s_r_.changed(core_->s_axil_rvalid, core_->s_axil_rready, core_->s_axil_rdata,
                              core_->s_axil_rresp)) {
            violate("a register's value changed or went away before it was taken");
        }
        // An answer needs address and data of an earlier cycle.
        if (core_->s_axil_bvalid && (taken_.aw == taken_.b || taken_.w == taken_.b)) {
            violate("a register's write response without a write");
        }
        if (core_->s_axil_rvalid && taken_.ar == taken_.r) violate("a register's value without a read");
        taken_.aw += seen_.aw;
        taken_.w += seen_.w;
        taken_.b += seen_.b;
        taken_.ar += seen_.ar;
        taken_.r += seen_.r;
    }

    void check_burst(const char* what, const Burst& burst, int size, int type) {
        const uint64_t first = burst.address - burst.address % kBus;
        if (size != kSize) violate("a %s burst has size %d, not the bus's %d", what, size, kSize);
        if (type != kIncrementing) violate("a %s burst has type %d, not INCR", what, type);
        if (burst.beats > kMaxBurst) violate("a %s burst has %d beats, more than max_burst", what, burst.beats);
        if (first / kPage != (first + uint64_t(burst.beats) * kBus - 1) / kPage) {
            violate("a %s burst of %d beats at %#llx crosses 4 KiB", what, burst.beats,
                    static_cast<unsigned long long>(burst.address));
        }
    }

    static uint64_t beat_address(const Burst& burst) {
        return burst.address - burst.address % kBus + uint64_t(burst.moved) * kBus;
    }

    bool inside(uint64_t address) const {
        return address >= origin_ && memory_size_ >= kBus && address - origin_ <= memory_size_ - kBus;
    }

    // The first is kept, all are counted.
    __attribute__((format(printf, 2, 3))) void violate(const char* format, ...) {
        if (violations_++) return;
        char text[200], place[60];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        if (core_->trace_running) {
            std::snprintf(place, sizeof place, "cycle %lld: ", static_cast<long long>(run_cycle_));
        } else {
            std::snprintf(place, sizeof place, "clock %llu, not running: ", static_cast<unsigned long long>(now_));
        }
        violation_ = std::string(place) + text;
    }

    // Ten time units are a cycle; its first half has the clock high, as the edge that begins it left it.
    void dump(int edge) {
#if VM_TRACE
        if (!vcd_) return;
        if (vcd_last_ < 0) {  // everything
            vcd_->dump(now_ * 10 + (edge ? 10 : 5));
            vcd_next_ = now_ * 10 + 10;
            return;
        }
        // After the edge the signals are those of the next cycle; it may be the first, or that of done.
        if (edge && core_->trace_running && !was_running_) vcd_origin_ = vcd_next_;
        const int64_t cycle = edge ? (was_running_ ? run_cycle_ + 1 : 0) : run_cycle_;
        if (!was_running_ && !(edge && core_->trace_running)) return;
        if (cycle < vcd_first_ || cycle > vcd_last_) return;
        const uint64_t time = vcd_origin_ + uint64_t(cycle) * 10 + (edge ? 0 : 5);
        vcd_->dump(time);
        vcd_next_ = time - time % 10 + 10;
#else
        (void)edge;
#endif
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vnpu> core_;
    uint64_t now_ = 0;

    uint64_t latency_ = 100;
    size_t read_limit_ = 16, write_limit_ = 16;
    uint8_t* memory_ = nullptr;
    uint64_t memory_size_ = 0;
    uint64_t origin_ = 0;
    std::deque<Burst> reads_;
    std::deque<Burst> writes_;       // from address to response
    size_t complete_writes_ = 0;     // of these, how many have all their data; they are the oldest
    bool read_offered_ = false, response_offered_ = false;
    uint64_t random_ = 1;
    int stall_percent_ = 0;
    int stalled_ = 0;
    uint64_t spread_ = 0;
    int errors_per_mille_ = 0;

    Held held_ar_, held_aw_, held_w_, held_s_b_, held_s_r_;
    struct {
        uint64_t aw, w, b, ar, r;
    } taken_{};  // on the register bus, since the reset
    bool in_reset_ = false;
    std::string violation_;
    size_t violations_ = 0;

    struct {
        bool aw, w, b, ar, r;
        int response;
        uint32_t data;
    } seen_{};

    bool was_running_ = false, was_done_ = false;
    int64_t run_cycle_ = -1;
    int64_t last_activity_ = 0;
    std::vector<int64_t> trace_[kEngines][kEvents];

#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> vcd_;
    int64_t vcd_first_ = 0, vcd_last_ = -1;
    uint64_t vcd_origin_ = 0, vcd_next_ = 0;
#endif
};

}  // namespace

NPU_API Harness* npu_create() { return new Harness; }
NPU_API void npu_destroy(Harness* h) { delete h; }
NPU_API void npu_reset(Harness* h) { h->reset(); }
NPU_API void npu_set_dram(Harness* h, uint64_t latency, int reads, int writes, uint8_t* memory, uint64_t size) {
    h->set_dram(latency, reads, writes, memory, size);
}
NPU_API void npu_set_origin(Harness* h, uint64_t origin) { h->set_origin(origin); }
NPU_API void npu_surround(Harness* h, uint64_t seed, int stall_percent, int stalled, uint64_t spread,
                          int errors_per_mille) {
    h->surround(seed, stall_percent, stalled, spread, errors_per_mille);
}
NPU_API int npu_write_register(Harness* h, uint32_t offset, uint32_t value) {
    return h->write_register(offset, value);
}
NPU_API int npu_read_register(Harness* h, uint32_t offset, uint32_t* value) {
    return h->read_register(offset, value);
}
NPU_API int64_t npu_run(Harness* h, int64_t cycles) { return h->run(cycles); }
NPU_API int npu_running(Harness* h) { return h->running(); }
NPU_API int npu_interrupt(Harness* h) { return h->interrupt(); }
NPU_API int64_t npu_cycles(Harness* h) { return h->cycles(); }
NPU_API int64_t npu_last_activity(Harness* h) { return h->last_activity(); }
// The events' cycles stay valid until the core is stepped again.
NPU_API int64_t npu_trace(Harness* h, int engine, int event, const int64_t** cycles) {
    const std::vector<int64_t>& trace = h->trace(engine, event);
    *cycles = trace.data();
    return int64_t(trace.size());
}
NPU_API const char* npu_violation(Harness* h) { return h->violation(); }
NPU_API void npu_clear_violation(Harness* h) { h->clear_violation(); }
NPU_API int npu_open_vcd(Harness* h, const char* path, int64_t first, int64_t last) {
    return h->open_vcd(path, first, last);
}
NPU_API void npu_flush_vcd(Harness* h) { h->flush_vcd(); }
