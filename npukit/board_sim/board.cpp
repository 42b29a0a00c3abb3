// What is connected to a board's pins: the oscillator, the SDRAM chip, the other end of the serial line, two LEDs.
//
// The design is the bitstream's own, with models of the cells that it instantiates (npukit/fpga/cell_models.py). Its
// oscillator runs at four times the system's clock, so a cycle is four of its periods: the system's clock rises in the
// first, the chip's, a quarter of a period later, in the second. A chip's of twice the rate rises in the second and in
// the fourth, and what it sends is on its way for a cycle more.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "Vboard.h"
#include "sdram_chip.h"
#include "verilated.h"

#define BOARD_API extern "C" __attribute__((visibility("default")))

namespace {

class Board {
public:
    Board(const SdramTimes& times, uint16_t* memory, int divisor, bool late)
        : context_(new VerilatedContext), top_(new Vboard(context_.get(), "top")), chip_(times, memory), divisor_(divisor), late_(late) {
        top_->oscillator = 0;
        top_->rx = 1;
        top_->sdram_dq = 0;
        top_->eval();
    }
    ~Board() { top_->final(); }

    void send(const uint8_t* bytes, int64_t count) {
        to_board_.insert(to_board_.end(), bytes, bytes + count);
        quiet_ = 0;
    }

    int64_t receive(uint8_t* bytes, int64_t room) {
        int64_t count = 0;
        while (count < room && !from_board_.empty()) {
            bytes[count++] = from_board_.front();
            from_board_.pop_front();
        }
        return count;
    }

    // So many cycles, or fewer: until there is nothing to do for the line's last byte and some time.
    int64_t run(int64_t cycles) {
        int64_t done = 0;
        for (; done < cycles && chip_.violation().empty() && quiet_ < kQuietBits * divisor_; ++done) cycle();
        return done;
    }

    bool quiet() const { return quiet_ >= kQuietBits * divisor_ && to_board_.empty(); }
    int64_t waiting() const { return int64_t(to_board_.size()); }
    int64_t cycles() const { return cycles_; }
    const char* violation() const { return chip_.violation().c_str(); }

private:
    static constexpr int64_t kQuietBits = 64;

    void period() {
        top_->oscillator = 1;
        top_->eval();
        const bool clock = top_->sdram_clk;
        if (clock && !chip_clock_) step_chip();
        chip_clock_ = clock;
        top_->oscillator = 0;
        top_->eval();
    }

    void cycle() {
        drive_line();
        for (int quarter = 0; quarter < 4; ++quarter) period();
        watch_line();
        // LEDs: the accelerator runs, the host link is at work
        const bool busy = (top_->leds & 0b110) || count_ || bits_left_ || !to_board_.empty();
        quiet_ = busy ? 0 : quiet_ + 1;
        ++cycles_;
    }

    void step_chip() {
        SdramPins pins;
        pins.cke = top_->sdram_clk_en;
        pins.cs_n = top_->sdram_cs;
        pins.ras_n = top_->sdram_ras;
        pins.cas_n = top_->sdram_cas;
        pins.we_n = top_->sdram_we;
        pins.bank = top_->sdram_ba;
        pins.address = top_->sdram_a;
        pins.dqm = top_->sdram_dqm;
        pins.driven = top_->sdram_dq__en != 0;
        pins.dq = top_->sdram_dq__out;
        uint16_t word = 0;
        if (!chip_.step(pins, &word)) word = 0;
        top_->sdram_dq = late_ ? on_its_way_ : word;
        on_its_way_ = word;
    }

    // The host's transmitter: a start bit, eight of data, a stop bit.
    void drive_line() {
        if (timer_ > 0) {
            --timer_;
            return;
        }
        if (bits_left_ == 0 && !to_board_.empty()) {
            shift_out_ = unsigned(to_board_.front()) << 1 | 0x200;
            to_board_.pop_front();
            bits_left_ = 10;
        }
        if (bits_left_ == 0) return;
        top_->rx = shift_out_ & 1;
        shift_out_ >>= 1;
        --bits_left_;
        timer_ = divisor_ - 1;
    }

    // The host's receiver: each bit in its middle.
    void watch_line() {
        const bool level = top_->tx;
        if (count_ == 0) {
            if (!level) {
                count_ = 10;
                wait_ = divisor_ / 2;
            }
        } else if (wait_ > 0) {
            --wait_;
        } else {
            shift_in_ = shift_in_ >> 1 | unsigned(level) << 9;
            wait_ = divisor_ - 1;
            if (--count_ == 0 && shift_in_ >> 9 && !(shift_in_ & 1)) from_board_.push_back(uint8_t(shift_in_ >> 1));
        }
    }

    std::unique_ptr<VerilatedContext> context_;
    std::unique_ptr<Vboard> top_;
    SdramChip chip_;
    const int divisor_;  // cycles of a bit
    bool late_;  // whether a word is on its way for a cycle of the chip
    uint16_t on_its_way_ = 0;
    bool chip_clock_ = false;
    int64_t cycles_ = 0, quiet_ = 0;
    std::deque<uint8_t> to_board_, from_board_;
    int timer_ = 0, bits_left_ = 0, wait_ = 0, count_ = 0;
    unsigned shift_out_ = 0, shift_in_ = 0;
};

}  // namespace

BOARD_API Board* board_create(const SdramTimes* times, uint16_t* memory, int divisor, int late) {
    return new Board(*times, memory, divisor, late);
}
BOARD_API void board_destroy(Board* board) { delete board; }
BOARD_API void board_send(Board* board, const uint8_t* bytes, int64_t count) { board->send(bytes, count); }
BOARD_API int64_t board_receive(Board* board, uint8_t* bytes, int64_t room) { return board->receive(bytes, room); }
BOARD_API int64_t board_run(Board* board, int64_t cycles) { return board->run(cycles); }
BOARD_API int board_quiet(Board* board) { return board->quiet(); }
BOARD_API int64_t board_waiting(Board* board) { return board->waiting(); }
BOARD_API int64_t board_cycles(Board* board) { return board->cycles(); }
BOARD_API const char* board_violation(Board* board) { return board->violation(); }

// For the test that holds the chip to its model in Python.
BOARD_API SdramChip* chip_create(const SdramTimes* times, uint16_t* memory) { return new SdramChip(*times, memory); }
BOARD_API void chip_destroy(SdramChip* chip) { delete chip; }
BOARD_API int chip_step(SdramChip* chip, const int32_t* pins) {
    uint16_t word = 0;
    const SdramPins given = {pins[0] != 0, pins[1] != 0, pins[2] != 0, pins[3] != 0, pins[4] != 0,
                             pins[5], pins[6], pins[7], pins[8] >= 0, uint16_t(pins[8])};
    return chip->step(given, &word) ? word : -1;
}
BOARD_API const char* chip_violation(SdramChip* chip) { return chip->violation().c_str(); }
