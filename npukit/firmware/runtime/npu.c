/* Made by npukit: runtime of the accelerator, described in npu.h. */
#include "npu.h"

static enum npu_result wait_until_idle(const struct npu *npu)
{
    uint32_t polls = 0;
    while (npu_busy(npu)) {
        if (polls++ == NPU_POLL_LIMIT) return NPU_TIMED_OUT;
        NPU_POLL(npu);
    }
    return NPU_OK;
}

static void write_address(const struct npu *npu, uint32_t offset, uint64_t address)
{
    NPU_WRITE(npu, offset, (uint32_t)(address & 0xFFFFFFFFu));
    NPU_WRITE(npu, offset + 4u, (uint32_t)(address >> 32));
}

/* The write has arrived before anything is read: STATUS, above all, says no sooner that a program or a reset ended. */
static void write_control(const struct npu *npu, uint32_t value)
{
    NPU_WRITE(npu, NPU_CONTROL_OFFSET, value);
    NPU_BARRIER();
}

enum npu_result npu_init(struct npu *npu, volatile void *registers)
{
    npu->registers = (volatile uint32_t *)registers;
#ifdef NPU_WAIT_FOR_INTERRUPT
    npu->interrupt_enable = NPU_INTERRUPT_ENABLE_DONE_MASK; /* set after errors too */
#else
    npu->interrupt_enable = 0;
#endif
    npu->interrupted = 0;
    npu->causes = 0;
    npu->error_index = 0;
    if (NPU_READ(npu, NPU_IDENTITY_OFFSET) != NPU_IDENTITY_RESET) return NPU_BAD_IDENTITY;
    if (NPU_READ(npu, NPU_VERSION_OFFSET) != NPU_VERSION_RESET) return NPU_BAD_VERSION;
    return npu_reset(npu);
}

enum npu_result npu_reset(struct npu *npu)
{
    write_control(npu, NPU_CONTROL_RESET_MASK);
    return wait_until_idle(npu);
}

enum npu_result npu_attach(struct npu_model *model, struct npu *npu, const struct npu_program *program, void *memory,
                           const void *code)
{
    model->npu = npu;
    model->program = program;
    model->memory = (uint8_t *)memory;
    model->code = (const uint8_t *)code;
    if (NPU_READ(npu, NPU_CONFIG_HASH_LOW_OFFSET) != program->config_hash_low ||
        NPU_READ(npu, NPU_CONFIG_HASH_HIGH_OFFSET) != program->config_hash_high) {
        return NPU_BAD_CONFIGURATION;
    }
    if (NPU_BUS_ADDRESS(npu, model->memory) % NPU_ALIGNMENT != 0 ||
        NPU_BUS_ADDRESS(npu, model->code) % NPU_ALIGNMENT != 0) {
        return NPU_BAD_ADDRESS;
    }
    /* From here on the processor writes inputs alone, so that no dirty line of its cache can fall on results. */
    NPU_CACHE_CLEAN(model->memory, program->limit);
    NPU_CACHE_CLEAN(model->code, program->instructions * NPU_INSTRUCTION_BYTES);
    return NPU_OK;
}

void npu_copy(uint8_t *memory, const uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; ++i) memory[i] = data[i];
    NPU_CACHE_CLEAN(memory, bytes);
}

enum npu_result npu_start(const struct npu_model *model)
{
    struct npu *npu = model->npu;
    const struct npu_program *program = model->program;
    if (npu_busy(npu)) return NPU_STILL_BUSY;
    if (NPU_READ(npu, NPU_ERROR_OFFSET) != 0) { /* it sticks, and refuses every start */
        const enum npu_result result = npu_reset(npu);
        if (result != NPU_OK) return result;
    }
    NPU_WRITE(npu, NPU_PROGRAM_HASH_LOW_OFFSET, program->config_hash_low);
    NPU_WRITE(npu, NPU_PROGRAM_HASH_HIGH_OFFSET, program->config_hash_high);
    write_address(npu, NPU_PROGRAM_LOW_OFFSET, NPU_BUS_ADDRESS(npu, model->code));
    NPU_WRITE(npu, NPU_PROGRAM_LENGTH_OFFSET, program->instructions);
    write_address(npu, NPU_BASE_LOW_OFFSET, NPU_BUS_ADDRESS(npu, model->memory));
    write_address(npu, NPU_LIMIT_LOW_OFFSET, program->limit);
    /* what has happened before is no interrupt of this program */
    NPU_WRITE(npu, NPU_INTERRUPT_STATUS_OFFSET, NPU_READ(npu, NPU_INTERRUPT_STATUS_OFFSET));
    npu->interrupted = 0;
    NPU_WRITE(npu, NPU_INTERRUPT_ENABLE_OFFSET, npu->interrupt_enable);
    NPU_BARRIER();
    write_control(npu, NPU_CONTROL_START_MASK);
    return NPU_OK;
}

int npu_busy(const struct npu *npu)
{
    return (NPU_READ(npu, NPU_STATUS_OFFSET) & NPU_STATUS_BUSY_MASK) != 0;
}

enum npu_result npu_wait(struct npu *npu)
{
#ifdef NPU_WAIT_FOR_INTERRUPT
    while (!npu->interrupted) {
        if (NPU_WAIT_FOR_INTERRUPT(npu)) return NPU_TIMED_OUT;
    }
    return NPU_OK;
#else
    return wait_until_idle(npu);
#endif
}

enum npu_result npu_finish(struct npu *npu)
{
    const uint32_t status = NPU_READ(npu, NPU_STATUS_OFFSET);
    if (status & NPU_STATUS_BUSY_MASK) return NPU_STILL_BUSY;
    if (status & NPU_STATUS_ERROR_MASK) {
        npu->causes = NPU_READ(npu, NPU_ERROR_OFFSET);
        npu->error_index = NPU_READ(npu, NPU_ERROR_INDEX_OFFSET);
        return NPU_STOPPED;
    }
    if (!(status & NPU_STATUS_DONE_MASK)) return NPU_NOT_STARTED;
    NPU_BARRIER();
    return NPU_OK;
}

void npu_handle_interrupt(struct npu *npu)
{
    const uint32_t happened = NPU_READ(npu, NPU_INTERRUPT_STATUS_OFFSET);
    NPU_WRITE(npu, NPU_INTERRUPT_STATUS_OFFSET, happened);
    if (happened & NPU_INTERRUPT_STATUS_DONE_MASK) npu->interrupted = 1;
}

uint64_t npu_counter(const struct npu *npu, uint32_t offset)
{
    const uint32_t low = NPU_READ(npu, offset);
    return (uint64_t)NPU_READ(npu, offset + 4u) << 32 | low;
}
