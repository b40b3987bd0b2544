// Copies for user space of segments that the host sends while the link is not calm, and of short ones that it sends again: a probe of the
// peer may carry their data, and they are repeated when the link is back.

#pragma once

#include "maps.h"
#include "records.h"

#define COPIES_ROOM (1 << 18)
#define COPY_LEAST 40 // the headers of IPv4 and TCP
// Bytes of a short packet: a keystroke, a command, a small message.
#define COPY_SHORT 256

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, COPIES_ROOM);
} copies SEC(".maps");

// Room for a packet of at most so many bytes. The sizes are constants, as the verifier requires.
INLINE struct sent_copy *reserve_copy(u32 len, int is_calm)
{
	if (len < COPY_LEAST || len > COPY_MOST)
		return 0;
	if (len <= COPY_SHORT)
		return bpf_ringbuf_reserve(&copies, offsetof(struct sent_copy, bytes) + COPY_SHORT, 0);
	// Full segments leave room for keys.
	if (is_calm || bpf_ringbuf_query(&copies, BPF_RB_AVAIL_DATA) > COPIES_ROOM / 2)
		return 0;
	return bpf_ringbuf_reserve(&copies, sizeof(struct sent_copy), 0);
}

// Copies a packet if there is room in the ring: a short one, and while the link is not calm a full segment, too. A global function, so that
// the verifier need not follow its states through all the rest.
__attribute__((noinline)) int copy_segment(struct __sk_buff *skb, int is_retransmission, int is_calm)
{
	u32 frame_len = rules.frame_len == FRAME_LEN ? FRAME_LEN : 0;
	u32 len = skb->len - frame_len;
	struct sent_copy *copy = reserve_copy(len, is_calm);

	if (!copy)
		return 0;
	copy->len = len;
	copy->is_retransmission = is_retransmission;
	if (bpf_skb_load_bytes(skb, frame_len, copy->bytes, len)) {
		bpf_ringbuf_discard(copy, BPF_RB_NO_WAKEUP);
		return 0;
	}
	bpf_ringbuf_submit(copy, BPF_RB_NO_WAKEUP);
	return 1;
}
