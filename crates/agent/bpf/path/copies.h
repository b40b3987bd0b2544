// Copies for user space of short segments that the host sends while the link is not calm, or sends again: a probe of the peer may carry
// their data.

#pragma once

#include "maps.h"
#include "records.h"

#define COPY_LEAST 40 // the headers of IPv4 and TCP

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} copies SEC(".maps");

// Copies a packet if it is short and there is room in the ring. A global function, so that the verifier need not
// follow its states through all the rest.
__attribute__((noinline)) int copy_if_short(struct __sk_buff *skb, int is_retransmission)
{
	u32 frame_len = rules.frame_len == FRAME_LEN ? FRAME_LEN : 0;
	u32 len = skb->len - frame_len;

	if (len < COPY_LEAST || len > COPY_MOST)
		return 0;
	struct sent_copy *copy = bpf_ringbuf_reserve(&copies, sizeof(*copy), 0);

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
