/* Which code an input reached: a bit for each place, shared with the process that chooses inputs. Not instrumented. */
#include "fuzz.h"

uint8_t *coverage_map;

void __sanitizer_cov_trace_pc(void) {
    if (!coverage_map)
        return;
    uintptr_t place = (uintptr_t)__builtin_return_address(0);
    coverage_map[(place ^ place >> 16) % COVERAGE_SIZE] = 1;
}
