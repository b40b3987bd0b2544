// Orders of the controller, applied to one half of a flow.

#pragma once

#include "history.h"

INLINE void apply(const struct half *half, const struct order *order)
{
	switch (order->kind) {
	case ORDER_FLUSH:
		half->core->flags |= HALF_FLUSHED | HALF_HOLD_FROM;
		half->rest->flushed_from = shown_ack(half);
		half->rest->hold_from = order->c;
		show(half, order->now, order->a);
		half->core->flags &= ~HALF_SHRUNK;
		// ACKs held since the controller looked are flushed as well.
		if (!is_held(half))
			cancel_flush(half);
		break;
	case ORDER_SHOW:
		show(half, order->now, order->a);
		half->core->flags &= ~HALF_SHRUNK;
		break;
	case ORDER_REOPENED:
		half->core->flags &= ~HALF_SHRUNK;
		break;
	case ORDER_RECORD:
		set_flag(half, HALF_RECORDING, order->a);
		break;
	case ORDER_CLOCK:
		set_flag(half, HALF_CLOCKED, order->a);
		break;
	case ORDER_REFRESH:
		half->core->flags |= HALF_REFRESH;
		half->rest->refresh_stale = order->a;
		half->rest->refresh_value = order->b;
		half->rest->refresh_ticks_per_sec = order->c;
		half->rest->refresh_at = order->now;
		break;
	case ORDER_LIMIT_WINDOW:
		set_flag(half, HALF_LIMITED, order->b != LIMIT_NONE);
		set_flag(half, HALF_UNTIL_HEARD, order->b == LIMIT_UNTIL_HEARD || order->b == LIMIT_UNTIL_ACKED);
		set_flag(half, HALF_UNTIL_ACKED, order->b == LIMIT_UNTIL_ACKED);
		half->rest->most_window = order->b == LIMIT_NONE ? 0 : order->a;
		break;
	case ORDER_WINDOW_SHIFT:
		if (half->core->window_shift == UNKNOWN_SHIFT)
			half->core->window_shift = order->a > 14 ? 14 : order->a;
		break;
	}
}
