/* Made by npukit: runtime of the accelerator in C99, without an operating system, without allocation.
 *
 * It calls no library, but a compiler may make calls of memset and memcpy out of loops: compile with -ffreestanding, or
 * have these two.
 *
 * npu_port.h has what a system may have to define. A device and what runs on it belong to one thread at a time.
 */
#ifndef NPU_H
#define NPU_H

#include <stdint.h>

#include "npu_port.h"
#include "npu_registers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory for a model, and the address under which the bus finds it, are multiples of this. */
#define NPU_ALIGNMENT 4096u

/* An instruction has so many. */
#define NPU_INSTRUCTION_BYTES 32u

enum npu_result {
    NPU_OK = 0,
    NPU_BAD_IDENTITY,      /* there is no accelerator at the address of the registers */
    NPU_BAD_VERSION,       /* its instruction set has another version than the model */
    NPU_BAD_CONFIGURATION, /* it has another configuration than the one for which the model is compiled */
    NPU_BAD_ADDRESS,       /* memory or instructions are not at a multiple of NPU_ALIGNMENT */
    NPU_STILL_BUSY,        /* a program runs */
    NPU_NOT_STARTED,       /* no program has been started since the reset */
    NPU_TIMED_OUT,         /* the program, or a reset, has not ended in time: npu_reset ends a program */
    NPU_STOPPED            /* the program has ended with an error: see `causes` and `error_index` */
};

/* One accelerator. */
struct npu {
    volatile uint32_t *registers;    /* the first one, for NPU_READ and NPU_WRITE */
    uint32_t interrupt_enable;       /* INTERRUPT_ENABLE while a program runs; npu_init sets it */
    volatile uint32_t interrupted;   /* whether npu_handle_interrupt has seen the end of the program */
    uint32_t causes;                 /* after NPU_STOPPED: ERROR, see NPU_ERROR_..._MASK */
    uint32_t error_index;            /* after NPU_STOPPED: the number of the instruction */
};

/* A compiled program. */
struct npu_program {
    uint32_t config_hash_low;   /* of the configuration for which it is compiled */
    uint32_t config_hash_high;
    uint32_t instructions;
    uint32_t limit;             /* bytes of memory that its operands lie in */
};

/* A program on an accelerator. */
struct npu_model {
    struct npu *npu;
    const struct npu_program *program;
    uint8_t *memory;
    const uint8_t *code;
};

/* Find the accelerator at these registers, and reset it.
 * NPU_BAD_IDENTITY, NPU_BAD_VERSION, NPU_TIMED_OUT. */
enum npu_result npu_init(struct npu *npu, volatile void *registers);

/* End whatever runs, and clear errors. The models on the device need no further initialisation.
 * NPU_TIMED_OUT: bursts on the bus do not end. */
enum npu_result npu_reset(struct npu *npu);

/* Bind a program to an accelerator and to memory: `limit` bytes for operands, and its instructions at `code`.
 * NPU_BAD_CONFIGURATION, NPU_BAD_ADDRESS. */
enum npu_result npu_attach(struct npu_model *model, struct npu *npu, const struct npu_program *program, void *memory,
                           const void *code);

/* Copy so many bytes to memory that the accelerator reads. */
void npu_copy(uint8_t *memory, const uint8_t *data, uint32_t bytes);

/* Start a program whose inputs lie in memory, and return at once.
 * NPU_STILL_BUSY; NPU_TIMED_OUT: of the reset that clears an earlier error. */
enum npu_result npu_start(const struct npu_model *model);

/* Whether a program runs, or a reset. */
int npu_busy(const struct npu *npu);

/* Return when the program has ended: by interrupts where NPU_WAIT_FOR_INTERRUPT is defined, else by polling.
 * NPU_TIMED_OUT. */
enum npu_result npu_wait(struct npu *npu);

/* How the program has ended.
 * NPU_STILL_BUSY, NPU_NOT_STARTED, NPU_STOPPED. */
enum npu_result npu_finish(struct npu *npu);

/* For the system's interrupt handler: take back the interrupt. */
void npu_handle_interrupt(struct npu *npu);

/* A performance counter of 64 bits of the latest program, by its low half: npu_counter(npu, NPU_CYCLES_LOW_OFFSET). */
uint64_t npu_counter(const struct npu *npu, uint32_t offset);

#ifdef __cplusplus
}
#endif

#endif
