/* Made by npukit: what the runtime takes from the system around it.
 *
 * Each macro may be defined elsewhere: in a header of your own, which is named to the compiler as
 * -DNPU_PORT_HEADER='"my_port.h"', or on the command line. This file stays as it is.
 *
 * `npu` is a const struct npu *, `memory` and `pointer` are const uint8_t *, addresses as the processor has them, and
 * `bytes` is a uint32_t. Caches' lines may be longer than what is named: all that are touched are meant.
 */
#ifndef NPU_PORT_H
#define NPU_PORT_H

#ifdef NPU_PORT_HEADER
#include NPU_PORT_HEADER
#endif

/* Reads and writes a register of 32 bits, `offset` bytes from the first. */
#ifndef NPU_READ
#define NPU_READ(npu, offset) ((npu)->registers[(offset) / 4u])
#endif
#ifndef NPU_WRITE
#define NPU_WRITE(npu, offset, value) ((npu)->registers[(offset) / 4u] = (value))
#endif

/* The address, of 64 bits, under which the accelerator's bus finds what the processor has at `pointer`. */
#ifndef NPU_BUS_ADDRESS
#define NPU_BUS_ADDRESS(npu, pointer) ((uint64_t)(uintptr_t)(pointer))
#endif

/* Writes the cache's lines of that memory back: the processor has written there, and the accelerator will read. */
#ifndef NPU_CACHE_CLEAN
#define NPU_CACHE_CLEAN(memory, bytes) ((void)(memory), (void)(bytes))
#endif

/* Drops the cache's lines of that memory: the accelerator has written there, and the processor will read. */
#ifndef NPU_CACHE_INVALIDATE
#define NPU_CACHE_INVALIDATE(memory, bytes) ((void)(memory), (void)(bytes))
#endif

/* Orders accesses to memory and to registers: what is before it has happened before anything behind it begins. */
#ifndef NPU_BARRIER
#if defined(__riscv)
#define NPU_BARRIER() __asm__ __volatile__("fence iorw, iorw" ::: "memory")
#elif defined(__aarch64__) || (defined(__ARM_ARCH) && __ARM_ARCH >= 7)
#define NPU_BARRIER() __asm__ __volatile__("dsb sy" ::: "memory")
#elif defined(__GNUC__)
#define NPU_BARRIER() __sync_synchronize()
#else
#error "define NPU_BARRIER() for this compiler, see npu_port.h"
#endif
#endif

/* Waits for an interrupt, if the system has one for the accelerator; without this macro the runtime polls. Here `npu` is
 * a struct npu *.
 *
 * It is used again and again until npu_handle_interrupt, called by the system's interrupt handler or by this macro, has
 * seen the end of the program, so it may return early. It must return at once where that call has been made already.
 * Its value is 0 to go on, and anything else to give up, which makes npu_wait return NPU_TIMED_OUT.
 *
 * #define NPU_WAIT_FOR_INTERRUPT(npu) my_wait(npu)
 */

/* Reads of STATUS after which the runtime gives up: when it polls for the end of a program, and of a reset. */
#ifndef NPU_POLL_LIMIT
#define NPU_POLL_LIMIT 100000000u
#endif

/* Is used between two such reads, as to let others work or to feed a watchdog. */
#ifndef NPU_POLL
#define NPU_POLL(npu) ((void)(npu))
#endif

/* Lets an array begin at a multiple of so many bytes: memory for a model, and instructions that the accelerator reads
 * where the linker has put them. */
#ifndef NPU_ALIGNED
#if defined(__GNUC__)
#define NPU_ALIGNED(bytes) __attribute__((aligned(bytes)))
#else
#error "define NPU_ALIGNED(bytes) for this compiler, see npu_port.h"
#endif
#endif

/* With NPU_PROGRAM_IN_PLACE the accelerator reads instructions where the linker has put them, in flash for instance,
 * instead of a copy in memory. Its bus must reach them; NPU_BUS_ADDRESS says where.
 *
 * #define NPU_PROGRAM_IN_PLACE
 */

#endif
