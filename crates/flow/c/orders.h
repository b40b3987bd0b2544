// Orders of the controller, applied to one half of a flow.

#pragma once

#include "history.h"

INLINE void set_flag(struct half *half, u32 flag, u32 is_on)
{
	half->flags = is_on ? half->flags | flag : half->flags & ~flag;
}

INLINE void apply(struct half *half, const struct order *order)
{
	switch (order->kind) {
	case ORDER_FLUSH:
		half->flags |= HALF_FLUSHED;
		half->flushed_from = half->shown;
		half->hold_from = order->c;
		show(half, order->now, order->a);
		half->flags &= ~HALF_SHRUNK;
		// ACKs held since the controller looked are flushed as well.
		if (!is_held(half))
			cancel_flush(half);
		break;
	case ORDER_SHOW:
		show(half, order->now, order->a);
		half->flags &= ~HALF_SHRUNK;
		break;
	case ORDER_REOPENED:
		half->flags &= ~HALF_SHRUNK;
		break;
	case ORDER_RECORD:
		set_flag(half, HALF_RECORDING, order->a);
		break;
	case ORDER_CLOCK:
		set_flag(half, HALF_CLOCKED, order->a);
		break;
	case ORDER_REFRESH:
		half->flags |= HALF_REFRESH;
		half->refresh_stale = order->a;
		half->refresh_value = order->b;
		half->refresh_ticks_per_sec = order->c;
		half->refresh_at = order->now;
		break;
	case ORDER_LIMIT_WINDOW:
		set_flag(half, HALF_LIMITED, order->b != LIMIT_NONE);
		set_flag(half, HALF_UNTIL_HEARD, order->b == LIMIT_UNTIL_HEARD || order->b == LIMIT_UNTIL_ACKED);
		set_flag(half, HALF_UNTIL_ACKED, order->b == LIMIT_UNTIL_ACKED);
		half->most_window = order->b == LIMIT_NONE ? 0 : order->a;
		break;
	case ORDER_WINDOW_SHIFT:
		if (half->window_shift == UNKNOWN_SHIFT)
			half->window_shift = order->a > 14 ? 14 : order->a;
		break;
	}
}
