// The flow table of a shell in the kernel: its maps, new flows, notices and counters. A shell may count more than the flow path does: it
// defines ALL_COUNTERS before.

#pragma once

#include "kernel.h"

#include "state.h"

#ifndef ALL_COUNTERS
#define ALL_COUNTERS COUNTERS
#endif

// Set when the programs are loaded.
const volatile struct rules rules = {};

// A flow as words: a value with a lock cannot be copied.
struct blank_flow {
	u64 words[sizeof(struct flow) / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, struct flow);
} flows SEC(".maps");

// A flow before its first packet.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct blank_flow);
} blank_flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} flow_notices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ALL_COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

// Keys are compared in words (`word_at`).
#define KEY struct key __attribute__((aligned(8)))

INLINE void count(u32 what)
{
	u64 *value = bpf_map_lookup_elem(&counters, &what);

	if (value)
		*value += 1;
}

// A new flow; 0 if there is no room for it, which is counted.
INLINE struct flow *new_flow(const struct key *key)
{
	u32 zero = 0;
	struct blank_flow *anew = bpf_map_lookup_elem(&blank_flows, &zero);

	if (!anew)
		return 0;
	bpf_map_update_elem(&flows, key, anew, BPF_NOEXIST);
	struct flow *flow = bpf_map_lookup_elem(&flows, key);

	if (!flow)
		count(ALONE_FULL);
	return flow;
}

INLINE void notify(const struct key *key, u64 now, int direction, u8 kind, u32 ack)
{
	struct notice *notice = bpf_ringbuf_reserve(&flow_notices, sizeof(*notice), 0);

	if (!notice) {
		count(NOTICE_LOST);
		return;
	}
	notice->at = now;
	notice->key = *key;
	notice->ack = ack;
	notice->direction = direction;
	notice->kind = kind;
	__builtin_memset(notice->unused, 0, sizeof(notice->unused));
	bpf_ringbuf_submit(notice, 0);
}

#define ARRIVAL_EVERY (1 * MS)

// Gives a notice of an incoming packet, if packets are awaited. `noticed_at` is the time of the last such notice on this link. Call it
// after the flow was updated, as user space reads the flow then.
INLINE void note_arrival(u64 *noticed_at, const struct key *key, const struct link *link, u64 now)
{
	if (!link->awaits_packets || now - *noticed_at < ARRIVAL_EVERY)
		return;
	*noticed_at = now;
	notify(key, now, INCOMING, NOTICE_ARRIVED, 0);
}
