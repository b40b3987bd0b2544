// The maps beside the flow table, and the shell's accesses to them: the current link, lines of predictions.

#pragma once

#include "flow_table.h"

// Each IP version has two links in `links`, as the versions may fail separately; `status` (STATUS_*) selects the current one.
#define IPV4 0
#define IPV6 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4); // two for IPv4, then two for IPv6
	__type(key, u32);
	__type(value, struct link);
} links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} status SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); // values begin with a page, so none lies in two cache lines
	__uint(max_entries, 2 << PREDICTION_PLACES_BITS);
	__type(key, u32);
	__type(value, struct prediction);
} predictions SEC(".maps");

_Static_assert(__builtin_offsetof(struct order, key) % 8 == 0 && sizeof(struct prediction) == 64, "word_at reads aligned words");

INLINE u64 status_now(void)
{
	u32 zero = 0;
	u64 *now = bpf_map_lookup_elem(&status, &zero);

	return now ? READ_ONCE(*now) : 0;
}

INLINE u32 family_of(const struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? IPV6 : IPV4;
}

INLINE int link_is_calm(u64 status, u32 family)
{
	return status & (family == IPV6 ? STATUS_CALM_IPV6 : STATUS_CALM);
}

INLINE const struct link *link_of(u64 status, u32 family)
{
	u32 number = (status & STATUS_NUMBER) | family << 1;

	return bpf_map_lookup_elem(&links, &number);
}

INLINE struct prediction *prediction_at(u32 number)
{
	return bpf_map_lookup_elem(&predictions, &number);
}

INLINE struct prediction *neighbour_of(struct prediction *own, u32 number)
{
	return prediction_at(number ^ 1);
}
