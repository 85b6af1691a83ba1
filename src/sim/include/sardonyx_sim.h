/* Control of the simulated device, beside HIP's own functions. C and C++. */
#ifndef SARDONYX_SIM_H
#define SARDONYX_SIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes the configuration. `json` is an object with any of
 *   "chips": ["gfx942", "gfx942"]      one device each; changing the list drops all device memory and modules
 *   "threads": 0                       host threads that run workgroups; 0: one per core
 *   "max_instructions_per_wave": 200000000
 *   "check_waits", "check_races" (both on), "check_global_races", "check_uninitialized", "summary" (all off): true or
 *                                      false; docs/simulator.md says what each finds
 *   "preload_arguments": true          false: waves start as with firmware that does not put a kernel's first
 *                                      arguments into registers (AMDGPU usage guide, "Preloaded Kernel Arguments")
 *   "timing": "all"                    estimates the time of every launch (docs/amd-clock.md): "off"; "all", where
 * every workgroup is executed; "sample", where only those that the estimate needs are, without matrix arithmetic, so
 * that results are wrong
 *   "timing_repeats": 0                with "timing": "sample": of launches that differ in addresses alone, so many are
 *                                      simulated, and later ones take the estimate of the last; 0: all are
 *   "mhz": 0                           shader clock of estimates; 0: the product's, lowered as its power limit needs
 *   "print_timing": true, "timing_file": "x.json", "timeline_file": "x.json"   what is written
 * when the process ends "timeline_segments": 50000         events of waves that estimates keep for the timeline
 *   "print_failures", "print_summary": true or false: on standard error, as they happen and when the process ends
 *   "trace": {"kernel": "name", "workgroup": 0, "wave": 0, "file": "trace.txt"}   null turns the trace off
 * The variable SARDONYX_SIM of the environment may hold such an object (or a list of chips) for programs that do not
 * call this. Returns 0, or -1 for text that is not such an object (nothing changes then; sardonyxSimLastFailure says
 * why). Not while a kernel runs. */
int sardonyxSimConfigure(const char* json);

/* Why the last launch of this process failed: kernel, reason, instruction, source line, workgroup, wave, lane and
 * address. Valid until the next call from the same thread; "" when none failed. */
const char* sardonyxSimLastFailure(void);

/* The instruction counts collected while "summary" was on, as JSON: by kernel, the number of launches, the executed
 * wave-instructions by kind, and the bytes that lanes read and wrote in global memory (scalar loads included), LDS and
 * scratch. Valid until the next call from the same thread. */
const char* sardonyxSimSummary(void);

/* The estimates of all launches made while "timing" was on, as JSON (docs/amd-clock.md lists the keys). Events measure
 * that time then. Valid until the next call from the same thread. */
const char* sardonyxSimTiming(void);

/* The same as a timeline in Chrome's trace format, which ui.perfetto.dev opens: launches, and the waves of one compute
 * unit (RDNA: workgroup processor) of each kernel, as far as "timeline_segments" allows. */
const char* sardonyxSimTimeline(void);

/* Microseconds that the clock has counted for all launches of this process; -1 while "timing" is off. */
double sardonyxSimMicroseconds(void);

/* Holds a stream back (hipStream_t; null: the current device's null stream) until it is released: what is submitted to
 * it waits, and so does, as on a card, what other streams submit after hipStreamWaitEvent() for an event of it, or in
 * the order that the null stream keeps. Functions that wait for the stream block, those of other threads too, so that a
 * test has to release it first or in another thread. So tests show that a program orders its work after that of a
 * stream. Without a held stream, work is done when it is submitted. Return 0, or -1 for a stream that does not exist,
 * is captured, or is (is not) held already. */
int sardonyxSimHoldStream(void* stream);
int sardonyxSimReleaseStream(void* stream);

/* How often this happened in this process: "allocations" (of device memory and of pinned memory of the host, pools
 * included), "graphs" (made executable), "graph_launches", "kernel_launches" (those in graphs are not counted); and
 * "waiting": operations that wait now, after work of a held stream. -1 for another word. */
long long sardonyxSimCount(const char* what);

/* Forgets the counts of sardonyxSimSummary() and the estimates of sardonyxSimTiming(). */
void sardonyxSimResetSummary(void);

#ifdef __cplusplus
}
#endif
#endif
