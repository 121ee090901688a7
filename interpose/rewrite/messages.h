/* SPDX-License-Identifier: MIT
 *
 * Whether a call may be made a collective one although ranks exchange messages. A collective
 * allocation is one more barrier. It must not come between a receive and the send that ends the
 * wait, as here, where rank 0 would wait for the message and rank 1 in malloc():
 *
 *     if (rank == 0) { MPI_Recv(..., 1, ...); }
 *     p = malloc(8);
 *     if (rank == 1) { MPI_Send(..., 0, ...); }
 *
 * A call is safe if all threads make it and no exchange may come between it and the last barrier,
 * or none between it and the next one: then each exchange is over before the call begins, or begins
 * after all threads have made the call. The beginning of the program and its end are barriers.
 */
#ifndef GPUALLOC_REWRITE_MESSAGES_H
#define GPUALLOC_REWRITE_MESSAGES_H

#include "function.h"

#include <vector>

namespace rewrite
{

/* The exchanges that may come between a point and the last barrier, or the next one. */
struct exchange_state {
    const cause *exchange = nullptr; /* an exchange in this function, or in one that it calls */
    bool at_edge = false;            /* the function begins (or ends) without a barrier between */

    bool join(const exchange_state &other)
    {
        bool grows = (other.exchange && !exchange) || (other.at_edge && !at_edge);
        exchange = exchange ? exchange : other.exchange;
        at_edge = at_edge || other.at_edge;
        return grows;
    }
};

struct message_summary {
    exchange_state before, after; /* seen from the end, and from the beginning */
    const cause *waits = nullptr; /* an exchange or a barrier in it */
};

/* Of one function, by summaries of those that it calls. */
class message_flow
{
  public:
    explicit message_flow(const function &of);

    /* Returns true if the summary has changed. */
    bool analyse(const std::vector<const message_summary *> &of_callees);

    message_summary found;
    std::vector<exchange_state> before, after; /* of each site of the function */

  private:
    void run(unsigned block, bool forward, exchange_state &now,
             const std::vector<const message_summary *> &of_callees);
    bool run_all(bool forward, const std::vector<const message_summary *> &of_callees);

    const function &of;
    std::vector<exchange_state> at_end, at_beginning; /* of each block */
};

} // namespace rewrite

#endif
