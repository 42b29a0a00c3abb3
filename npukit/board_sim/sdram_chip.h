// A single data rate SDRAM chip that answers its pins and says what the data sheet forbids: npukit/fpga/sdram_chip.py in
// C++, step by step, for speed. A test holds the two together.

#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <vector>

// In cycles of the chip's clock, but for the numbers of bits and refreshes; model.py has the same order.
struct SdramTimes {
    int64_t cas_latency, activate_to_column, precharge, row_active, row_active_most, row_cycle, refresh_cycle;
    int64_t bank_to_bank, write_recovery, mode, power_up, refresh_interval;
    int64_t row_bits, column_bits, bank_bits, initial_refreshes, refreshes_late;
};

struct SdramPins {
    bool cke, cs_n, ras_n, cas_n, we_n;
    int bank, address, dqm;
    bool driven;  // whether the controller drives the data pins
    uint16_t dq;
};

class SdramChip {
public:
    SdramChip(const SdramTimes& times, uint16_t* memory)
        : times_(times), memory_(memory), banks_(size_t(1) << times.bank_bits), ready_(times.power_up) {}

    // Takes the pins of a cycle; whether there is a word for the controller's registers at its end, and which.
    bool step(const SdramPins& pins, uint16_t* word) {
        const int command = pins.cke && !pins.cs_n ? pins.ras_n << 2 | pins.cas_n << 1 | pins.we_n : kNop;
        if (command != kNop) carry_out(command, pins);
        move_data(pins);
        check_refresh();
        drives_.erase(cycle_);
        ++cycle_;
        const auto found = words_.find(cycle_);
        if (found == words_.end()) return false;
        *word = found->second;
        words_.erase(found);
        return true;
    }

    // The first violation, or an empty text.
    const std::string& violation() const { return violation_; }
    int64_t refreshes() const { return refreshes_; }

private:
    enum Command { kMode, kRefresh, kPrecharge, kActivate, kWrite, kRead, kStop, kNop };
    static constexpr int64_t kNever = -(int64_t(1) << 40);
    static constexpr int kAllBanks = 1 << 10;
    struct Bank {
        int row = -1;
        int64_t activated = kNever, precharged = kNever, read_end = kNever, written = kNever;
    };

    void fail(const std::string& rule, const SdramPins* pins = nullptr) {
        if (!violation_.empty()) return;
        violation_ = "cycle " + std::to_string(cycle_) + ": " + rule;
        if (!pins) return;
        char where[64];
        std::snprintf(where, sizeof where, " (bank %d, address 0x%x)", pins->bank, unsigned(pins->address));
        violation_ += where;
    }

    static std::string hexadecimal(int value) {
        char text[16];
        std::snprintf(text, sizeof text, "0x%x", unsigned(value));
        return text;
    }

    void after(int64_t since, int64_t cycles, const std::string& rule, const SdramPins& pins) {
        if (cycle_ - since < cycles)
            fail(rule + ": " + std::to_string(cycle_ - since) + " of " + std::to_string(cycles) + " cycles", &pins);
    }

    void carry_out(int command, const SdramPins& pins) {
        static const char* const names[] = {"MODE", "REFRESH", "PRECHARGE", "ACTIVATE", "WRITE", "READ", "STOP", "NOP"};
        const std::string name = names[command];
        if (cycle_ < ready_) fail(name + " " + std::to_string(ready_ - cycle_) + " cycles before the chip is ready", &pins);
        if (!taking_.empty()) fail(name + " while a WRITE still takes words", &pins);
        switch (command) {
            case kMode: return mode(pins);
            case kRefresh: return refresh(pins);
            case kPrecharge: return precharge(pins);
            case kActivate: return activate(pins);
            case kWrite: return write(pins);
            case kRead: return read(pins);
            default: fail("STOP is not modelled", &pins);
        }
    }

    void mode(const SdramPins& pins) {
        idle("MODE", pins);
        if (refreshes_ < times_.initial_refreshes)
            fail("MODE after " + std::to_string(refreshes_) + " of " + std::to_string(times_.initial_refreshes) +
                     " refreshes", &pins);
        const int latency = pins.address >> 4 & 7;
        if (latency != times_.cas_latency || (pins.address & ~0x77) || (pins.address & 7) > 3)
            fail("the mode " + hexadecimal(pins.address) + " has no CAS latency " + std::to_string(times_.cas_latency) +
                     ", or a mode unknown", &pins);
        burst_ = 1 << (pins.address & 7);
        ready_ = cycle_ + times_.mode;
        started_ = cycle_;
        refreshed_ = 0;
    }

    void refresh(const SdramPins& pins) {
        idle("REFRESH", pins);
        ++refreshes_;
        ++refreshed_;
        ready_ = cycle_ + times_.refresh_cycle;
    }

    void idle(const std::string& name, const SdramPins& pins) {
        if (!precharged_all_) fail(name + " before all banks were precharged once", &pins);
        for (size_t number = 0; number < banks_.size(); ++number) {
            const Bank& bank = banks_[number];
            const std::string which = std::to_string(number);
            if (bank.row >= 0) fail(name + " with row " + std::to_string(bank.row) + " of bank " + which + " open", &pins);
            after(bank.precharged, times_.precharge, name + " after tRP of bank " + which, pins);
            after(bank.activated, times_.row_cycle, name + " after tRC of bank " + which, pins);
        }
    }

    void precharge(const SdramPins& pins) {
        const bool every = pins.address & kAllBanks;
        precharged_all_ |= every;
        for (size_t number = 0; number < banks_.size(); ++number) {
            if (!every && int(number) != pins.bank) continue;
            Bank& bank = banks_[number];
            if (bank.row >= 0) {
                after(bank.activated, times_.row_active, "PRECHARGE after tRAS", pins);
                after(bank.written, times_.write_recovery, "PRECHARGE after tWR", pins);
                if (cycle_ < bank.read_end) fail("PRECHARGE cuts a READ short", &pins);
                bank.precharged = cycle_;
            }
            bank.row = -1;
        }
    }

    void activate(const SdramPins& pins) {
        Bank& bank = banks_[size_t(pins.bank)];
        if (!burst_) fail("ACTIVATE before the mode is set", &pins);
        if (bank.row >= 0) fail("ACTIVATE with row " + std::to_string(bank.row) + " open", &pins);
        if (pins.address >> times_.row_bits) {
            fail("ACTIVATE of a row that the chip does not have", &pins);
            return;
        }
        after(bank.precharged, times_.precharge, "ACTIVATE after tRP", pins);
        after(bank.activated, times_.row_cycle, "ACTIVATE after tRC", pins);
        for (const Bank& other : banks_) after(other.activated, times_.bank_to_bank, "ACTIVATE after tRRD", pins);
        bank.row = pins.address;
        bank.activated = cycle_;
    }

    // The open bank's place of the word `index` of a burst; within the burst places wrap.
    size_t place(const SdramPins& pins, const Bank& bank, int index) const {
        const size_t row = (size_t(bank.row) << times_.bank_bits | size_t(pins.bank)) << times_.column_bits;
        return row | size_t(pins.address & -burst_) | size_t((pins.address + index) % burst_);
    }

    Bank* column(const std::string& name, const SdramPins& pins) {
        Bank& bank = banks_[size_t(pins.bank)];
        if (bank.row < 0) {
            fail(name + " of a closed bank", &pins);
            return nullptr;
        }
        after(bank.activated, times_.activate_to_column, name + " after tRCD", pins);
        if (pins.address >> times_.column_bits) {
            fail(name + " with a column beyond the row, or with precharge", &pins);
            return nullptr;
        }
        return &bank;
    }

    void read(const SdramPins& pins) {
        Bank* bank = column("READ", pins);
        if (!bank) return;
        const int64_t first = cycle_ + times_.cas_latency;
        if (words_.count(first)) fail("READ cuts another one short", &pins);
        for (int index = 0; index < burst_; ++index) words_[first + index] = memory_[place(pins, *bank, index)];
        for (int64_t cycle = first - 1; cycle <= first + burst_; ++cycle) drives_[cycle] = true;
        bank->read_end = cycle_ + burst_;
    }

    void write(const SdramPins& pins) {
        Bank* bank = column("WRITE", pins);
        if (!bank) return;
        for (int index = 0; index < burst_; ++index) taking_.push_back(place(pins, *bank, index));
    }

    void move_data(const SdramPins& pins) {
        if (pins.driven && drives_.count(cycle_)) fail("controller and chip both drive the data pins", &pins);
        if (taking_.empty()) return;
        if (!pins.driven) fail("a WRITE without data", &pins);
        const size_t where = taking_.front();
        taking_.pop_front();
        const uint16_t mask = uint16_t((pins.dqm & 1 ? 0 : 0x00FF) | (pins.dqm & 2 ? 0 : 0xFF00));
        memory_[where] = uint16_t((memory_[where] & ~mask) | (pins.dq & mask));
        banks_[where >> times_.column_bits & (banks_.size() - 1)].written = cycle_;
    }

    void check_refresh() {
        for (size_t number = 0; number < banks_.size(); ++number)
            if (banks_[number].row >= 0 && cycle_ - banks_[number].activated > times_.row_active_most)
                fail("row " + std::to_string(banks_[number].row) + " of bank " + std::to_string(number) +
                     " is open for more than tRAS max");
        if (burst_ && cycle_ > ready_) {
            const int64_t due = (cycle_ - started_) / times_.refresh_interval;
            if (due - refreshed_ > times_.refreshes_late)
                fail(std::to_string(refreshed_) + " refreshes where " + std::to_string(due) + " are due");
        }
    }

    SdramTimes times_;
    uint16_t* memory_;
    std::vector<Bank> banks_;
    int64_t cycle_ = 0, ready_, refreshes_ = 0, refreshed_ = 0, started_ = 0;
    int burst_ = 0;  // words of a READ or WRITE; 0 before the mode register is set
    bool precharged_all_ = false;
    std::map<int64_t, uint16_t> words_;  // to drive, by the cycle at whose start the controller's registers take them
    std::map<int64_t, bool> drives_;     // cycles in some of which the chip drives the data pins
    std::deque<size_t> taking_;          // places of the words that a WRITE still takes
    std::string violation_;
};
