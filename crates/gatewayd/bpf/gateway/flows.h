// The flow path for the TCP connections of mobile hosts, each of which has a link of its own: `peer` is the mobile host, and `host` the
// fixed host.

#pragma once

#include "rules.h"
#include "state.h"

#include "entry.h"

#include "parse.h"
#include "rewrite.h"

// Variables that do not fit the stack. A processor runs one program at a time: both hooks run with softirqs off.
struct current {
	struct link link;
	struct prediction none[2]; // header prediction is for hosts with a few fast flows: these lines are never active
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct current);
} currents SEC(".maps");

INLINE struct prediction *neighbour_of(struct prediction *own, u32 number)
{
	return 0;
}

// The flow table consists of entries; `flows` has the details of those that need them (entry.h).
struct blank_entry {
	u64 words[sizeof(struct entry) / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, struct entry);
} entries SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct blank_entry);
} blank_entries SEC(".maps");

// Room to make a flow of an entry, and an entry of a flow. Orders have their own: packets may come in while one is carried out.
#define FOR_PACKETS 0
#define FOR_ORDERS 1

struct workroom {
	struct blank_flow flow;
	struct blank_entry entry;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct workroom);
} workrooms SEC(".maps");

// Flows for whose ACKs nothing is done have no details.
INLINE int may_have_details(const struct entry *entry)
{
	return READ_ONCE(entry->link_number) != NO_LINK;
}

INLINE struct flow *details_of(const struct key *key, const struct entry *entry)
{
	return READ_ONCE(entry->flags) & ENTRY_DETAILED ? bpf_map_lookup_elem(&flows, key) : 0;
}

// The effect of a packet on the table. Details are newer than the entry; only a SYN needs them for this.
INLINE enum finding look_up(const struct entry *entry, const struct key *key, const struct packet *packet)
{
	if (!entry)
		return find_between(0, 0, 0, 0, packet);
	const struct flow *flow = packet->flags & SYN ? details_of(key, entry) : 0;

	if (flow)
		return find_between(1, flow->stage, flow->host_isn, flow->incoming.flags | flow->outgoing.flags, packet);
	return find_between(1, entry->stage, entry->host_isn, entry->incoming.flags | entry->outgoing.flags, packet);
}

// The entry of a packet; 0 if there is no room for it, or if it belongs to no flow.
INLINE struct entry *find(struct mobile *mobile, const struct key *key, const struct packet *packet)
{
	struct entry *entry = bpf_map_lookup_elem(&entries, key);

	enum finding finding = look_up(entry, key, packet);

	if (finding == FLOW_KNOWN)
		return entry;
	if (finding == FLOW_UNSEEN) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	if (entry)
		bpf_map_delete_elem(&entries, key);
	u32 zero = 0;
	struct blank_entry *anew = bpf_map_lookup_elem(&blank_entries, &zero);

	if (!anew)
		return 0;
	// Details of an earlier connection of the same name, whose entry may have been evicted.
	bpf_map_delete_elem(&flows, key);
	bpf_map_update_elem(&entries, key, anew, BPF_NOEXIST);
	entry = bpf_map_lookup_elem(&entries, key);
	if (!entry) {
		count(ALONE_FULL);
		count(NO_ENTRY);
		return 0;
	}
	// A list of connections that user space has made earlier lacks this one.
	mobile->connected_at = packet->now;
	if (flow_rules_len)
		entry->link_number = link_of(key);
	return entry;
}

INLINE void clear_history(struct half_rest *half)
{
	__builtin_memset(half->older_runs, 0, sizeof(half->older_runs));
	__builtin_memset(half->shown_lately, 0, sizeof(half->shown_lately));
	__builtin_memset(half->sack, 0, sizeof(half->sack));
}

// Gives a flow details. Returns 0 if there is no room, which is counted: then its packets pass as they are. A packet that another
// processor has at this moment may be missing in them.
static __attribute__((noinline)) int add_details(const struct key *on_stack, u32 purpose)
{
	KEY key = *on_stack;
	struct entry *entry = bpf_map_lookup_elem(&entries, &key);
	struct workroom *room = bpf_map_lookup_elem(&workrooms, &purpose);

	if (!entry || !room)
		return 0;
	struct flow *flow = (struct flow *)&room->flow;

	__builtin_memset(flow->frame_out, 0, sizeof(flow->frame_out) + sizeof(flow->frame_in));
	clear_history(&flow->outgoing_rest);
	clear_history(&flow->incoming_rest);
	bpf_spin_lock(&entry->lock);
	expand(flow, entry, 0);
	entry->flags |= ENTRY_DETAILED;
	bpf_spin_unlock(&entry->lock);
	bpf_map_update_elem(&flows, &key, flow, BPF_NOEXIST);
	if (bpf_map_lookup_elem(&flows, &key)) {
		count(DETAILED);
		return 1;
	}
	count(ALONE_FULL);
	return 0;
}

// An entry has taken the place of the flow, which is about to be deleted: packets that still find it pass as they are.
#define STAGE_COMPACTED 0x8000

// Drops the details and keeps the entry, if nothing is held. Returns whether it did.
static __attribute__((noinline)) int remove_details(const struct key *on_stack)
{
	KEY key = *on_stack;
	u32 purpose = FOR_ORDERS;
	struct entry *entry = bpf_map_lookup_elem(&entries, &key);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	struct workroom *room = bpf_map_lookup_elem(&workrooms, &purpose);

	if (!entry || !flow || !room)
		return 0;
	struct entry *anew = (struct entry *)&room->entry;

	anew->flags = 0;

	bpf_spin_lock(&flow->lock);
	int may = is_at_rest(flow);

	if (may) {
		compact(anew, flow);
		flow->stage |= STAGE_COMPACTED;
	}
	bpf_spin_unlock(&flow->lock);
	if (!may)
		return 0;
	anew->link_number = entry->link_number;
	bpf_spin_lock(&entry->lock);
	// Behind the lock.
	__builtin_memcpy((u8 *)entry + 4, (u8 *)anew + 4, sizeof(*entry) - 4);
	bpf_spin_unlock(&entry->lock);
	bpf_map_delete_elem(&flows, &key);
	return 1;
}

// Sends a packet to or from a mobile host on the flow path, if it is TCP. Returns whether it is withheld; it may be rewritten.
INLINE int withholds(struct __sk_buff *skb, struct mobile *mobile, u64 now, u64 expires, int direction)
{
	KEY key = {};
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	struct current *current = bpf_map_lookup_elem(&currents, &zero);
	struct workroom *room = bpf_map_lookup_elem(&workrooms, &zero);

	if (!rules.holds || !scratch || !current || !room)
		return 0;
	struct packet *packet = &scratch->packet;
	struct verdict *verdict = &scratch->verdict;

	__builtin_memset(&scratch->offsets, 0, sizeof(scratch->offsets));
	__builtin_memset(packet, 0, sizeof(*packet));
	__builtin_memset(verdict, 0, sizeof(*verdict));
	if (read_packet(skb, scratch, &key, direction) != READ)
		return 0;
	count(direction == OUTGOING ? SEEN : SEEN_IN);
	packet->now = now;
	struct entry *entry = find(mobile, &key, packet);

	if (!entry)
		return 0;
	bpf_spin_lock(&mobile->lock);
	current->link = mobile->links[READ_ONCE(entry->link_number) & (LINKS - 1)];
	bpf_spin_unlock(&mobile->lock);
	current->link.expires_at = expires;
	const struct link *link = &current->link;
	struct flow *flow = details_of(&key, entry);

	if (!flow && may_have_details(entry) && needs_details(link) && add_details(&key, FOR_PACKETS))
		flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow) {
		bpf_spin_lock(&entry->lock);
		int wants = follow(entry, (struct flow *)&room->flow, &rules, packet, direction);
		bpf_spin_unlock(&entry->lock);
		if (!may_have_details(entry))
			count(ALONE_POLICY);
		else if (wants)
			add_details(&key, FOR_PACKETS);
		return 0;
	}
	if (flow->stage & STAGE_LEFT_ALONE) {
		count(ALONE_POLICY);
		return 0;
	}
	begin_verdict(verdict, packet);

	bpf_spin_lock(&flow->lock);
	int is_taken = !(flow->stage & STAGE_COMPACTED) &&
		       pass_between(flow, link, &rules, &key, packet, verdict, current->none, direction);
	bpf_spin_unlock(&flow->lock);

	if (!is_taken)
		return 0;
	if (direction == INCOMING)
		note_arrival(&mobile->arrival_noticed_at, &key, link, now);
	if (verdict->notice)
		notify(&key, now, direction, verdict->notice, verdict->notice_ack);
	// User space hangs: the flow is tracked, and its packets pass.
	if (now >= expires)
		return 0;
	if (verdict->probe)
		count(PROBED);
	if (verdict->withhold) {
		count(WITHHELD);
		return 1;
	}
	rewrite(skb, &scratch->offsets, packet, verdict);
	return 0;
}
