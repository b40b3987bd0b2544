// The fast path of `wake` as eBPF on an interface: what it remembers of each connection, and what becomes of an ACK.
//
// It is the twin of crates/mobility/src/fast_path: the same state, the same decisions, the same names. A test feeds both the same
// packets and compares what they do and what they remember (crates/agent/tests). Whatever changes there changes here.
//
// Nothing is sent from here, and there is no timer: user space hears of what is to be done in the ring `notices`, looks at a
// connection in the map `connections`, and changes it by running `order`. If user space falls silent, `expires_at` of the link
// comes, and from then on every packet passes as it is. Maps and programs go with the process that has loaded them.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#define MS 1000000ULL
#define INLINE static __always_inline

// ---- What is remembered. Laid out as `fast_path::raw` has it. ----

#define MOST_RUNS 8
#define MOST_SHOWN 16
#define MOST_BLOCKS 4

struct run {
	u32 start, end;
	u32 size;
};

struct shown {
	u64 at;
	u32 ack;
	u32 unused;
};

struct block {
	u32 start, end;
};

// Times are in ns of CLOCK_MONOTONIC; 0 is never.
struct half {
	// What nearly every packet asks for, together.
	u64 last_data_at, advanced_at, bytes_acked;
	u64 newest_stamp_at;
	u64 flush_at, hold_from;
	u64 flight_since, flight_from;
	u32 newest_stamp;
	u32 acked, shown;
	u32 longest_segment;
	u32 said_nxt, said_ack, said_val, said_ecr;
	u32 flags;
	u32 flight_bytes;
	u32 flushed_from;
	u16 said_window;
	u8 said_ttl, said_class;
	u8 runs_len, shown_len, sack_len;
	u8 window_shift; // UNKNOWN_SHIFT if it is not known
	u32 shown_next;  // where the next goes among `shown_lately`
	struct run runs[MOST_RUNS];
	struct shown shown_lately[MOST_SHOWN];
	struct block sack[MOST_BLOCKS];
	u64 first_stamp_at;
	u64 refresh_at, refresh_ticks_per_sec;
	u32 first_stamp;
	u32 refresh_stale, refresh_value;
	u32 unused;
};

#define UNKNOWN_SHIFT 0xff

#define HALF_ACKED 0x1        // `acked` and `shown` mean something
#define HALF_SAID 0x2         // so do `said_*`
#define HALF_SAID_STAMPS 0x4  // with timestamps
#define HALF_ENDING 0x8
#define HALF_RESET 0x10
#define HALF_DRAWN_IN 0x20
#define HALF_RECORDING 0x40
#define HALF_CLOCKED 0x80
#define HALF_FLUSHED 0x100    // `flushed_from` means something
#define HALF_REFRESH 0x200    // so do `refresh_*`
#define HALF_FAST 0x400       // data came faster than FASTEST, and has been faster than STILL_FAST since

struct connection {
	struct bpf_spin_lock lock;
	u32 epoch;
	u64 smoothed, latest, least;
	u64 stamped_at, timed_at, heard_at;
	u32 stamped, timed, nxt;
	u32 flags;
	// What follows is not of the twin: for whoever keeps the map, and for whoever sends frames.
	u64 seen_at, began_at;
	u64 bytes_in, bytes_out;
	u32 withheld, lowered;
	u32 host_isn, host_fin, peer_fin;
	u8 frame_out[ETH_HLEN], frame_in[ETH_HLEN];
	u16 gone;
	u16 unused[3];
	struct half outgoing, incoming;
};

#define TRIP_SAMPLED 0x1
#define TRIP_STAMPED 0x2
#define TRIP_TIMED 0x4
#define TRIP_NXT 0x8

#define GONE_ISN 0x1
#define GONE_HOST_FIN 0x2
#define GONE_PEER_FIN 0x4
#define GONE_HOST_FIN_ACKED 0x8
#define GONE_PEER_FIN_ACKED 0x10
#define GONE_RESET 0x20
#define LEFT_ALONE 0x40

// ---- What user space says. ----

struct link {
	u64 down_at, up_at;
	u64 stall_cut_at, stall_until, stall_lead; // a lead of 0: a round trip of each connection
	u64 expires_at;
	u32 epoch;
	u8 is_down, has_up, is_releasing, has_stall;
	u8 awaits_packets; // packets that come in are news
	u8 listens;        // nothing has come in for a while: the first packet that does is to be noticed
	u8 unused[6];
};

struct rules {
	u64 hold_after_bytes, hold_pause, hold_flush;
	u64 refresh_for;
	u32 hold_segments;  // 0: nothing is held back
	u32 holds;          // whether anything is ever withheld
	u32 frame_len;      // bytes before the IP header: ETH_HLEN or 0
	u32 mark_out, mark_in;
	u32 test_clock;     // the time is the packet's
};

const volatile struct rules rules = {};

// The link as it is now is that of the two whose number is in `turn`, for each IP version by itself, as they may fail apart. With it are
// the flag CALM if nothing happens to it (for IPv4 and for IPv6), FRAMES if packets are Ethernet frames, and LISTENS while nothing has come
// in for a while: all that is asked of every packet is in one line of the cache.
#define TURN_NUMBER 1
#define TURN_CALM 2
#define TURN_FRAMES 4
#define TURN_LISTENS 8
#define TURN_CALM_IPV6 16

#define IPV4 0
#define IPV6 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4); // those of IPv6 after those of IPv4
	__type(key, u32);
	__type(value, struct link);
} links SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} turn SEC(".maps");

struct key {
	u8 local[16], remote[16];
	u16 local_port, remote_port; // as on the wire
};

#define KEY struct key __attribute__((aligned(8)))

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, struct connection);
} connections SEC(".maps");

// What has come of a bulk in one direction since its connection was last looked at: the packets that only go on as those before
// are noted here, in one line of the cache and without a lock. Every place has two, one for each direction; whoever claims one has it
// until user space frees it.
struct bulk {
	struct key key;
	u32 next;   // where the next segment begins
	u64 said;   // what it says: the ACK, from bit 32 on the window, from bit 48 on the size of whole segments
	u64 stamps; // its timestamps, as on the wire
	u32 most;   // BULK_DATA that comes in: where it has to end; ACKs: how far they go
	u32 state;  // from bit 8 on the last bytes of the first value, and of the first echo, that are to be looked at again
};

#define BULK_FREE 0
#define BULK_IDLE 1
#define BULK_DATA 2  // segments with data and one ACK
#define BULK_ACKS 3  // segments without data, of which each acknowledges more
#define BULK_TIMED 4 // the same before one that ends a round trip
#define BULK_KIND 0xff
#define BULK_TICKS 4 // of timestamps, until a packet is looked at again

#define BULK_PLACES_BITS 6

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); // so that values begin with a page, and none lies in two lines of the cache
	__uint(max_entries, 2 << BULK_PLACES_BITS);
	__type(key, u32);
	__type(value, struct bulk);
} bulks SEC(".maps");

// What a connection is before its first packet; in words, because whoever has a lock in a map cannot copy it.
struct blank {
	u64 words[sizeof(struct connection) / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct blank);
} blank SEC(".maps");

struct notice {
	u64 at;
	struct key key;
	u32 ack;
	u8 direction, kind;
	u16 unused;
};

#define NOTICE_HELD 1
#define NOTICE_STALLED 2
#define NOTICE_QUEUED 3
#define NOTICE_OPENED 4
#define NOTICE_INCOMING 5 // a packet has come in over a link that is said to be down, or after a silence
#define NOTICE_ARRIVED 6  // a packet has come in while that is news

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} notices SEC(".maps");

enum counter {
	SEEN,             // outgoing TCP packets that were looked at
	LOWERED,          // ACKs that were lowered
	WITHHELD,         // ACKs that were not let through
	REFRESHED,        // echoed timestamps that were replaced
	DRAWN_IN,         // windows that were made small
	INJECTED,         // packets of user space's
	ALONE_FRAGMENT,
	ALONE_VLAN,
	ALONE_HEADER,     // extension headers of IPv6 that are too many or not understood
	ALONE_MALFORMED,
	ALONE_UNKNOWN,    // of connections of which the host has not sent anything yet
	ALONE_FULL,       // of connections for which there was no room
	ALONE_POLICY,
	NOTICE_LOST,
	WENT_ON,          // outgoing TCP packets that only went on as those before
	SEEN_IN,          // as SEEN, incoming
	WENT_ON_IN,       // as WENT_ON, incoming
	OTHERS_IN,        // other packets for this host from beyond the link, counted during a silence only
	COUNTERS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

// For each IP version.
u64 incoming_told_at[2] = {};
u64 arrival_told_at[2] = {};

INLINE void count(u32 what)
{
	u64 *value = bpf_map_lookup_elem(&counters, &what);

	if (value)
		*value += 1;
}

INLINE u64 turn_now(void)
{
	u32 zero = 0;
	u64 *which = bpf_map_lookup_elem(&turn, &zero);

	return which ? *(volatile u64 *)which : 0;
}

INLINE u32 family_of(const struct __sk_buff *skb)
{
	return skb->protocol == bpf_htons(ETH_P_IPV6) ? IPV6 : IPV4;
}

INLINE int is_calm(u64 turn, u32 family)
{
	return turn & (family == IPV6 ? TURN_CALM_IPV6 : TURN_CALM);
}

INLINE const struct link *link_of(u64 turn, u32 family)
{
	u32 number = (turn & TURN_NUMBER) | family << 1;

	return bpf_map_lookup_elem(&links, &number);
}

// ---- A packet. ----

#define OUTGOING 0
#define INCOMING 1

#define FIN 0x01
#define SYN 0x02
#define RST 0x04
#define PSH 0x08
#define ACK 0x10

// The usual options, as most segments have them: two no-operations and timestamps (RFC 7323 appendix A).
#define USUAL_OPTIONS 0x0101080a
#define USUAL_OPTIONS_LEN 12
#define USUAL_OFFSET 0x80 // of the data, with these options: byte 12 of the header

struct packet {
	u64 now;
	u32 seq, ack;
	u32 val, ecr;
	u32 len;          // of the payload
	u32 segment_size; // of each segment, if there are several in one
	u32 tcp_at;       // where the TCP header begins
	u16 window;
	u16 stamps_at;    // where the value of the timestamps option begins; 0 if there is none
	u16 sack_at[MOST_BLOCKS]; // where SACK options begin: one, or as many as a wrong header has
	u8 sack_bytes[MOST_BLOCKS];
	u8 flags;
	u8 ttl, traffic_class;
	u8 window_scale;  // UNKNOWN_SHIFT if the option is not there
	u8 sack_len;
	u8 sacks;         // SACK options
	u8 says_more;     // there is an option that no later ACK repeats
	u8 is_plain;      // no IP options, no flags but ACK and PSH, and timestamps where they usually are
	struct block sack[MOST_BLOCKS];
};

INLINE u32 read_u32(const u8 *bytes)
{
	return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

#define OPTIONS_MAX 40
#define OPTIONS_MASK 63 // what has room for them, and itself in `struct options`

struct options {
	u8 bytes[OPTIONS_MAX + 40]; // so that what begins in the first part ends in the second
};

// What is to be done to a packet.
struct verdict {
	u32 ack, ecr;
	u32 notice_ack;
	u16 window;
	u8 withhold, lower, window_changed, refresh, drawn_in;
	u8 notice;
	u8 advances; // it acknowledges more than any before
};

// What does not fit on the stack, or would have the verifier follow each of its values through all that comes after. Nothing comes
// between on the same processor: both hooks run with softirqs off.
struct scratch {
	struct options options;
	u32 option_at; // how far they are read
	u32 unused;
	struct packet packet;
	struct verdict verdict;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

#define GO_ON 0
#define STOP 1

// One option, as RFC 9293 section 3.1 has them; those of wrong length are skipped. They begin at `options_at` in the packet, and are
// `len` bytes.
INLINE int read_option(struct scratch *scratch, u32 options_at, u32 len)
{
	struct packet *packet = &scratch->packet;
	u32 at = *(volatile u32 *)&scratch->option_at;

	if (at >= len || at >= OPTIONS_MAX)
		return STOP;
	const u8 *option = scratch->options.bytes + at;
	u8 kind = option[0];

	if (kind == 0)
		return STOP;
	if (kind == 1) {
		scratch->option_at = at + 1;
		return GO_ON;
	}
	u32 size = at + 1 < len ? option[1] : 0;

	if (size < 2 || at + size > len) {
		packet->says_more = 1;
		return STOP;
	}
	if (kind == 8 && size == 10) {
		packet->val = read_u32(option + 2);
		packet->ecr = read_u32(option + 6);
		packet->stamps_at = options_at + at + 2;
	} else if (kind == 5 && size >= 10 && size <= 34 && (size & 7) == 2) {
		packet->sack_len = size >> 3;
		u32 number = packet->sacks & (MOST_BLOCKS - 1);

		packet->sack_at[number] = options_at + at;
		packet->sack_bytes[number] = size;
		packet->sacks = number + 1;
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++) {
			int is_there = n < packet->sack_len;

			packet->sack[n].start = is_there ? read_u32(option + 2 + 8 * n) : 0;
			packet->sack[n].end = is_there ? read_u32(option + 6 + 8 * n) : 0;
		}
	} else if (kind == 3 && size == 3) {
		packet->window_scale = option[2] > 14 ? 14 : option[2];
	} else if (!(kind == 2 && size == 4) && !(kind == 4 && size == 2)) {
		packet->says_more = 1;
	}
	scratch->option_at = at + size;
	return GO_ON;
}

// The options in `scratches`. A function that verifiers look at by itself, and whose state is in a map, which they do not follow: so all
// turns of the loop are alike to them. (`bpf_loop` needs Linux 5.17.)
__attribute__((noinline)) int read_options(u32 options_at, u32 len)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

	if (!scratch)
		return 0;
	scratch->option_at = 0;
#pragma clang loop unroll(disable)
	for (u32 n = 0; n < OPTIONS_MAX; n++) {
		if (read_option(scratch, options_at, len) == STOP)
			break;
	}
	return 0;
}

#define READ 0
#define ALONE 1

// Reads what the twin reads of a packet. Returns READ, or ALONE for what is none of ours; that is counted.
INLINE int read_packet(struct __sk_buff *skb, struct scratch *scratch, struct key *key, int direction)
{
	struct packet *packet = &scratch->packet;
	u32 at = rules.frame_len;
	u32 protocol = skb->protocol;
	u32 end;
	u8 next;
	int has_options = 0;

	if (skb->vlan_present || protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD)) {
		count(ALONE_VLAN);
		return ALONE;
	}
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;

	if (protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return ALONE;
		if (ip.protocol != IPPROTO_TCP)
			return ALONE;
		if (ip.frag_off & bpf_htons(0x3fff)) {
			count(ALONE_FRAGMENT);
			return ALONE;
		}
		if (ip.version != 4 || ip.ihl < 5) {
			count(ALONE_MALFORMED);
			return ALONE;
		}
		source[10] = source[11] = destination[10] = destination[11] = 0xff;
		__builtin_memcpy(source + 12, &ip.saddr, 4);
		__builtin_memcpy(destination + 12, &ip.daddr, 4);
		packet->ttl = ip.ttl;
		packet->traffic_class = ip.tos;
		end = at + bpf_ntohs(ip.tot_len);
		// The length of what stands for several may not fit.
		has_options = ip.ihl != 5 || ip.tot_len == 0;
		if (ip.tot_len == 0 && skb->gso_segs > 1)
			end = skb->len;
		at += ip.ihl * 4;
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return ALONE;
		__builtin_memcpy(source, &ip.saddr, 16);
		__builtin_memcpy(destination, &ip.daddr, 16);
		packet->ttl = ip.hop_limit;
		packet->traffic_class = ip.priority << 4 | ip.flow_lbl[0] >> 4;
		at += sizeof(ip);
		end = at + bpf_ntohs(ip.payload_len);
		if (ip.payload_len == 0 && skb->gso_segs > 1)
			end = skb->len;
		next = ip.nexthdr;
		has_options = next != IPPROTO_TCP || ip.payload_len == 0;
#pragma unroll
		for (int n = 0; n < 6; n++) {
			u8 header[8];

			if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS && next != IPPROTO_ROUTING)
				break;
			if (bpf_skb_load_bytes(skb, at, header, sizeof(header))) {
				count(ALONE_MALFORMED);
				return ALONE;
			}
			// One that is still on its way has another destination.
			if (next == IPPROTO_ROUTING && header[3]) {
				count(ALONE_HEADER);
				return ALONE;
			}
			next = header[0];
			at += 8 + header[1] * 8;
		}
		if (next == IPPROTO_FRAGMENT) {
			count(ALONE_FRAGMENT);
			return ALONE;
		}
		if (next == IPPROTO_HOPOPTS || next == IPPROTO_DSTOPTS || next == IPPROTO_ROUTING) {
			count(ALONE_HEADER);
			return ALONE;
		}
		if (next != IPPROTO_TCP)
			return ALONE;
	} else {
		return ALONE;
	}

	u8 tcp[20];

	if (bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp))) {
		count(ALONE_MALFORMED);
		return ALONE;
	}
	u32 header_len = (tcp[12] >> 4) * 4;

	if (header_len < 20 || at + header_len > end || end > skb->len) {
		count(ALONE_MALFORMED);
		return ALONE;
	}
	u16 source_port, destination_port;

	__builtin_memcpy(&source_port, tcp, 2);
	__builtin_memcpy(&destination_port, tcp + 2, 2);
	key->local_port = direction == OUTGOING ? source_port : destination_port;
	key->remote_port = direction == OUTGOING ? destination_port : source_port;
	packet->seq = read_u32(tcp + 4);
	packet->ack = read_u32(tcp + 8);
	packet->flags = tcp[13];
	packet->window = (u16)tcp[14] << 8 | tcp[15];
	packet->len = end - at - header_len;
	packet->segment_size = skb->gso_size;
	packet->tcp_at = at;
	packet->window_scale = UNKNOWN_SHIFT;
	u32 options_len = header_len - 20;

	if (options_len) {
		struct options *options = &scratch->options;

		if (options_len > OPTIONS_MAX)
			return ALONE;
		u32 wanted = options_len;

		// Verifiers before Linux 6.8 do not conclude from `!= 0` that it is at least 1; and the compiler must not know that it is.
		barrier_var(wanted);
		wanted = ((wanted - 1) & OPTIONS_MASK) + 1;
		if (bpf_skb_load_bytes(skb, at + 20, options->bytes, wanted)) {
			count(ALONE_MALFORMED);
			return ALONE;
		}
		// What most segments have, and no more.
		if (options_len == USUAL_OPTIONS_LEN && read_u32(options->bytes) == USUAL_OPTIONS) {
			packet->is_plain = !has_options && tcp[12] == USUAL_OFFSET && (tcp[13] & ~PSH) == ACK;
			packet->val = read_u32(options->bytes + 4);
			packet->ecr = read_u32(options->bytes + 8);
			packet->stamps_at = at + 24;
			return READ;
		}
		read_options(at + 20, options_len);
	}
	return READ;
}

// ---- Sequence numbers (RFC 9293 section 3.4), and timestamps, which are compared alike. ----

INLINE int before(u32 a, u32 b)
{
	return (int)(a - b) < 0;
}

INLINE u32 saturating_since(u32 a, u32 b)
{
	return before(a, b) ? 0 : a - b;
}

INLINE u32 later(u32 a, u32 b)
{
	return before(a, b) ? b : a;
}

// ---- round_trip.rs ----

// The two hooks may run at once: what is earlier may come later.
INLINE u64 since(u64 now, u64 then)
{
	return now > then ? now - then : 0;
}

INLINE u32 seq_len(const struct packet *packet)
{
	return packet->len + !!(packet->flags & SYN) + !!(packet->flags & FIN);
}

INLINE void sample(struct connection *connection, u64 sample)
{
	int first = !(connection->flags & TRIP_SAMPLED);

	connection->latest = sample;
	if (first || sample < connection->least)
		connection->least = sample;
	connection->smoothed = first ? sample : (connection->smoothed * 7 + sample) / 8;
	connection->flags |= TRIP_SAMPLED;
}

// The end of what is timed has to be looked at. At high rates, what is timed is what is looked at anyway.
INLINE int may_be_timed(const struct connection *connection, const struct packet *packet)
{
	const struct half *own = &connection->outgoing;
	int has_said = own->flags & HALF_SAID && own->flags & HALF_SAID_STAMPS;
	int is_first = !has_said || !packet->stamps_at || own->said_val != packet->val;

	return is_first || !(connection->incoming.flags & HALF_FAST);
}

INLINE void trip_outgoing(struct connection *connection, const struct packet *packet)
{
	u32 len = seq_len(packet);

	if (packet->stamps_at && !(connection->flags & TRIP_STAMPED)) {
		connection->flags |= TRIP_STAMPED;
		connection->stamped = packet->val;
		connection->stamped_at = packet->now;
	}
	if (!len)
		return;
	u32 end = packet->seq + len;

	if (connection->flags & TRIP_NXT && before(packet->seq, connection->nxt)) {
		connection->flags &= ~TRIP_TIMED;
	} else if (!(connection->flags & TRIP_TIMED) && may_be_timed(connection, packet)) {
		connection->flags |= TRIP_TIMED;
		connection->timed = end;
		connection->timed_at = packet->now;
	}
	connection->nxt = connection->flags & TRIP_NXT ? later(connection->nxt, end) : end;
	connection->flags |= TRIP_NXT;
}

INLINE void trip_incoming(struct connection *connection, const struct packet *packet)
{
	const struct half *acks = &connection->incoming;

	// Its end went by unseen: when, nobody knows.
	if (acks->flags & HALF_ACKED && !before(acks->acked, connection->timed))
		connection->flags &= ~TRIP_TIMED;
	if (connection->flags & TRIP_TIMED && !before(packet->ack, connection->timed)) {
		connection->flags &= ~TRIP_TIMED;
		sample(connection, since(packet->now, connection->timed_at));
	}
	if (connection->flags & TRIP_STAMPED && packet->stamps_at) {
		int ahead = (int)(packet->ecr - connection->stamped);

		if (ahead >= 0)
			connection->flags &= ~TRIP_STAMPED;
		if (ahead == 0 && connection->heard_at >= connection->stamped_at && packet->len)
			sample(connection, since(packet->now, connection->stamped_at));
	}
	connection->heard_at = packet->now;
}

// ---- fast_path/runs.rs ----

INLINE void note_run(struct half *half, u32 start, u32 end, u32 size)
{
	u32 len = half->runs_len;

	if (len) {
		struct run *last = &half->runs[(len - 1) & (MOST_RUNS - 1)];

		if (!before(last->end, end))
			return;
		start = later(start, last->end);
		if (start == last->end && size == last->size && (last->end - last->start) % last->size == 0) {
			last->end = end;
			return;
		}
	}
	if (len >= MOST_RUNS) {
#pragma unroll
		for (int n = 0; n < MOST_RUNS - 1; n++)
			half->runs[n] = half->runs[n + 1];
		len = MOST_RUNS - 1;
	}
	struct run *run = &half->runs[len & (MOST_RUNS - 1)];

	run->start = start;
	run->end = end;
	run->size = size;
	half->runs_len = len + 1;
}

// Where the last `wanted` whole segments before `acked` begin. Returns whether that is known.
INLINE int before_last(const struct half *half, u32 acked, u32 wanted, u32 *limit)
{
	u32 later_start = 0;
	int has_later = 0;

#pragma unroll
	for (int n = MOST_RUNS - 1; n >= 0; n--) {
		const struct run *run = &half->runs[n];

		if (n >= half->runs_len || !before(run->start, acked))
			continue;
		if (has_later && later_start != run->end) {
			wanted--;
			if (!wanted) {
				*limit = run->end;
				return 1;
			}
		}
		u32 size = run->size ? run->size : 1;
		u32 whole = before(acked, run->end) ? (acked - run->start) / size
						    : (run->end - run->start + size - 1) / size;

		if (whole >= wanted) {
			*limit = run->start + (whole - wanted) * size;
			return 1;
		}
		wanted -= whole;
		later_start = run->start;
		has_later = 1;
	}
	return 0;
}

INLINE u32 runs_end(const struct half *half)
{
	return half->runs[(half->runs_len - 1) & (MOST_RUNS - 1)].end;
}

// ---- fast_path/observed.rs ----

INLINE void note_stamp(struct half *half, const struct packet *packet)
{
	if (!half->first_stamp_at) {
		half->first_stamp_at = half->newest_stamp_at = packet->now;
		half->first_stamp = half->newest_stamp = packet->val;
	} else if (before(half->newest_stamp, packet->val)) {
		half->newest_stamp_at = packet->now;
		half->newest_stamp = packet->val;
	}
}

INLINE u32 shift_or(const struct half *half, u32 otherwise)
{
	u32 shift = half->window_shift == UNKNOWN_SHIFT ? otherwise : half->window_shift;

	return shift > 14 ? 14 : shift;
}

INLINE int may_be_in_window(const struct half *half, u32 seq)
{
	u32 field = half->flags & HALF_SAID ? half->said_window : 0xffff;
	u32 window = field << shift_or(half, 14);

	if (!(half->flags & HALF_ACKED))
		return 1;
	return !before(seq, half->acked) && seq - half->acked <= window;
}

// Bytes of each of several segments in one, or of the one.
INLINE u32 segment_size(u32 size, u32 len)
{
	return !size || size >= len ? len : size;
}

INLINE void note_data(struct half *half, const struct packet *packet)
{
	if (packet->flags & FIN)
		half->flags |= HALF_ENDING;
	if (packet->flags & RST && may_be_in_window(half, packet->seq))
		half->flags |= HALF_RESET;
	if (packet->stamps_at)
		note_stamp(half, packet);
	if (packet->flags & SYN && packet->window_scale == UNKNOWN_SHIFT)
		half->window_shift = 0;
	if (packet->len)
		half->flags &= ~HALF_FLUSHED;
	if (packet->flags & SYN || !packet->len)
		return;
	half->last_data_at = packet->now;
	u32 size = segment_size(packet->segment_size, packet->len);

	if (size > half->longest_segment)
		half->longest_segment = size;
	note_run(half, packet->seq, packet->seq + packet->len, size);
}

INLINE void note_said(struct half *half, const struct packet *packet)
{
	u32 end = packet->seq + seq_len(packet);
	u32 shift = packet->flags & SYN && packet->window_scale != UNKNOWN_SHIFT ? packet->window_scale : 0;

	half->said_nxt = half->flags & HALF_SAID ? later(half->said_nxt, end) : end;
	half->said_ack = packet->ack;
	half->said_window = packet->window >> (shift > 14 ? 14 : shift);
	half->said_ttl = packet->ttl;
	half->said_class = packet->traffic_class & 0xfc; // without ECN (RFC 3168)
	half->flags |= HALF_SAID;
	if (packet->stamps_at) {
		half->flags |= HALF_SAID_STAMPS;
		half->said_val = packet->val;
		half->said_ecr = packet->ecr;
	} else {
		half->flags &= ~HALF_SAID_STAMPS;
	}
}

// The next three are about the half whose receiver is the one that takes, or has sent, the packet.
INLINE int is_beyond_window(const struct half *half, const struct packet *packet)
{
	u32 field = half->flags & HALF_SAID ? half->said_window : 0xffff;

	return half->flags & HALF_ACKED && before(half->acked, packet->seq) &&
	       packet->seq - half->acked > field << shift_or(half, 14);
}

INLINE int is_before_window(const struct half *half, const struct packet *packet)
{
	return half->flags & HALF_ACKED && before(packet->seq + seq_len(packet), half->acked);
}

INLINE int opens_window(const struct half *half, const struct packet *packet)
{
	u32 segment = half->longest_segment ? half->longest_segment : 1;

	return half->flags & HALF_SAID && ((u32)half->said_window << shift_or(half, 0)) < segment &&
	       packet->window > half->said_window;
}

enum kind { ADVANCING, REPEATED, OLD, OTHER };

INLINE int note_ack(struct half *half, const struct packet *packet)
{
	if (packet->flags & SYN && half->window_shift != 0)
		half->window_shift = packet->window_scale == UNKNOWN_SHIFT ? 0 : packet->window_scale;
	if (!(packet->flags & ACK) || packet->flags & RST)
		return OTHER;
	half->flags &= ~HALF_RESET;
	if (!(half->flags & HALF_ACKED)) {
		note_said(half, packet);
		half->flags |= HALF_ACKED;
		half->acked = half->shown = packet->ack;
		return OTHER;
	}
	if (before(packet->ack, half->acked))
		return OLD;
	if (half->runs_len && before(runs_end(half) + 1, packet->ack))
		return OTHER;
	note_said(half, packet);
	if (half->sack_len | packet->sack_len) {
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++)
			half->sack[n] = packet->sack[n];
	}
	half->sack_len = packet->sack_len;
	if (packet->ack == half->acked)
		return REPEATED;
	half->bytes_acked += packet->ack - half->acked;
	half->acked = packet->ack;
	half->advanced_at = packet->now;
	return ADVANCING;
}

INLINE void show(struct half *half, u64 now, u32 ack)
{
	if (!before(half->shown, ack))
		return;
	half->shown = ack;
	struct shown *shown = &half->shown_lately[half->shown_next & (MOST_SHOWN - 1)];

	shown->at = now;
	shown->ack = ack;
	half->shown_next = (half->shown_next + 1) & (MOST_SHOWN - 1);
	if (half->shown_len < MOST_SHOWN)
		half->shown_len++;
}

#define FASTEST 250 // bytes per microsecond
#define STILL_FAST (FASTEST / 8)

INLINE u64 whole_micros(u64 nanos)
{
	u64 micros = nanos / 1000;

	return !micros ? 1 : micros > 0xffffffff ? 0xffffffff : micros;
}

// Of a fast connection: no packet may be looked at for some four milliseconds, which is no pause.
#define SELDOM (8 * MS)

INLINE void note_flight(struct half *half, const struct connection *connection, u64 now)
{
	if (!(connection->flags & TRIP_SAMPLED))
		return;
	if (half->flight_since) {
		u64 elapsed = since(now, half->flight_since);
		u64 bytes = half->bytes_acked - half->flight_from;

		if (elapsed < connection->smoothed)
			return;
		if (bytes > 0xffffffff)
			bytes = 0xffffffff;
		u64 micros = whole_micros(elapsed);

		int is_fast = bytes > (half->flags & HALF_FAST ? STILL_FAST : FASTEST) * micros;

		bytes = is_fast ? 0 : bytes * whole_micros(connection->smoothed) / micros;
		// A pause says nothing.
		if (elapsed < connection->smoothed * 4 || (half->flags & HALF_FAST && elapsed < SELDOM)) {
			half->flight_bytes = bytes > 0xffffffff ? 0xffffffff : bytes;
			half->flags = is_fast ? half->flags | HALF_FAST : half->flags & ~HALF_FAST;
		}
	}
	half->flight_since = now;
	half->flight_from = half->bytes_acked;
}

INLINE int is_held(const struct half *half)
{
	return half->flags & HALF_ACKED && before(half->shown, half->acked);
}

// ---- fast_path/mod.rs ----

#define HOLD_NOTHING 0
#define HOLD_LAST 1
#define HOLD_ALL 2

#define USUAL_LEAD (150 * MS)
#define LEAD_MARGIN (10 * MS)
#define LONGEST_LEAD (1000 * MS)
#define PART_OF_WINDOW 8
#define USUAL_SEGMENT 1460
#define DRIFT_PART 5000

INLINE int is_stalling(const struct link *link, const struct connection *connection, u64 now)
{
	u64 lead = link->stall_lead;

	if (link->is_down || !link->has_stall)
		return 0;
	if (!lead && connection->flags & TRIP_SAMPLED) {
		lead = connection->smoothed > connection->latest ? connection->smoothed : connection->latest;
		lead += lead / 8 + LEAD_MARGIN;
	}
	if (!lead)
		lead = USUAL_LEAD;
	if (lead > LONGEST_LEAD)
		lead = LONGEST_LEAD;
	return link->stall_cut_at <= now + lead && now < link->stall_until;
}

INLINE u64 since_up(const struct link *link, u64 now)
{
	return now > link->up_at ? now - link->up_at : 0;
}

INLINE int refreshes(const struct half *half, const struct link *link, u64 now)
{
	return half->flags & HALF_REFRESH && (link->awaits_packets || (link->has_up && since_up(link, now) < rules.refresh_for));
}

INLINE int holding_now(const struct link *link, int stalls, u64 now)
{
	if (!rules.holds || link->expires_at <= now)
		return HOLD_NOTHING;
	if (link->is_down || stalls)
		return HOLD_ALL;
	if (!rules.hold_segments || link->awaits_packets || (link->has_up && since_up(link, now) < rules.hold_pause))
		return HOLD_NOTHING;
	return HOLD_LAST;
}

// Whether the right edge of the window stays where it is if the ACK is lowered: an edge that is drawn back at both ends is the end.
INLINE int keeps_the_edge(const struct half *half, const struct packet *packet, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	return !held || (half->window_shift != UNKNOWN_SHIFT && (held >> shift_or(half, 0)) + packet->window <= 0xffff);
}

// hold_back.rs, `limit`.
INLINE int hold_back(const struct half *half, const struct packet *packet, int kind, u32 *limit)
{
	if (kind != ADVANCING || packet->sack_len || packet->flags & (SYN | FIN | RST))
		return 0;
	if (half->flags & HALF_ENDING || half->bytes_acked < rules.hold_after_bytes ||
	    half->bytes_acked < half->hold_from)
		return 0;
	if (!before_last(half, half->acked, rules.hold_segments, limit))
		return 0;
	u32 held = saturating_since(packet->ack, *limit);
	u32 window = (u32)packet->window << shift_or(half, 0);

	if (half->flight_bytes < window)
		window = half->flight_bytes;
	return held <= window / PART_OF_WINDOW && keeps_the_edge(half, packet, *limit);
}

INLINE int flows_since(const struct half *half, const struct link *link, int direction)
{
	u64 last = direction == OUTGOING ? half->last_data_at : half->advanced_at;

	return link->has_up && last && last >= link->up_at;
}

INLINE void lower(const struct half *half, const struct packet *packet, struct verdict *verdict, u32 ack)
{
	u32 held = saturating_since(packet->ack, ack);

	if (!held)
		return;
	verdict->lower = 1;
	verdict->ack = ack;
	if (half->window_shift != UNKNOWN_SHIFT) {
		u32 units = held >> shift_or(half, 0);
		u32 window = packet->window + (units > 0xffff ? 0xffff : units);

		verdict->window = window > 0xffff ? 0xffff : window;
		verdict->window_changed = verdict->window != packet->window;
	}
}

INLINE void draw_in(const struct half *half, const struct packet *packet, struct verdict *verdict)
{
	u32 shift = shift_or(half, 0);

	if (!half->longest_segment)
		return;
	u32 segment = half->longest_segment < USUAL_SEGMENT ? half->longest_segment : USUAL_SEGMENT;
	u32 units = (2 * segment + (1u << shift) - 1) >> shift;

	if (units < verdict->window) {
		verdict->drawn_in = 1;
		verdict->window = units;
		verdict->window_changed = verdict->window != packet->window;
	}
}

INLINE void show_or_lower(struct half *half, const struct packet *packet, struct verdict *verdict, int kind, int opens,
			  int has_limit, u32 limit, int arrives)
{
	int exempt = kind == OTHER || packet->flags & (SYN | FIN | RST);

	has_limit = has_limit && !exempt;
	limit = later(half->shown, limit);
	if (has_limit && !packet->len && limit == half->shown && !packet->says_more && !opens) {
		verdict->withhold = 1;
	} else if (has_limit && keeps_the_edge(half, packet, limit)) {
		lower(half, packet, verdict, limit);
		show(half, packet->now, verdict->ack);
	} else if (kind != OTHER && arrives) {
		half->flags &= ~(HALF_RECORDING | HALF_DRAWN_IN);
		show(half, packet->now, verdict->ack);
	}
}

INLINE void take_ack(struct connection *connection, struct half *half, const struct link *link, const struct packet *packet,
		     struct verdict *verdict, int direction)
{
	u64 now = packet->now;
	int stalls = is_stalling(link, connection, now);
	int holding = holding_now(link, stalls, now);
	int is_up = !link->is_down || link->is_releasing;
	int is_past = direction == INCOMING && !(packet->flags & SYN) && is_before_window(&connection->outgoing, packet);
	int was_held = is_held(half), opens = opens_window(half, packet);
	int kind = is_past ? OTHER : note_ack(half, packet);
	if (kind == ADVANCING)
		note_flight(half, connection, now);
	int is_stalled = stalls && holding == HOLD_ALL && kind == ADVANCING;
	const struct half *other = direction == OUTGOING ? &connection->incoming : &connection->outgoing;
	// One end at a time: if both had sent beyond the window that they see, neither would take the other's ACKs.
	int begins_stall = is_stalled && !(other->flags & HALF_DRAWN_IN) && !(half->flags & HALF_DRAWN_IN) &&
			   !half->sack_len && half->window_shift != UNKNOWN_SHIFT;

	if (is_stalled && !begins_stall) {
		half->flags |= HALF_RECORDING;
		verdict->notice = NOTICE_STALLED;
		verdict->notice_ack = packet->ack;
	}
	if (half->flags & HALF_CLOCKED && link->expires_at > now) {
		verdict->notice = NOTICE_QUEUED;
		verdict->notice_ack = half->flags & HALF_ACKED ? half->acked : packet->ack;
		holding = HOLD_ALL;
	} else if (link->is_releasing && (!was_held || flows_since(half, link, direction))) {
		holding = HOLD_NOTHING;
	}
	u32 limit = half->shown;
	int has_limit = 0;

	if (!begins_stall && holding == HOLD_ALL)
		has_limit = half->flags & HALF_ACKED;
	else if (!begins_stall && holding == HOLD_LAST && rules.hold_segments)
		has_limit = hold_back(half, packet, kind, &limit);
	if (refreshes(half, link, now) && packet->stamps_at && !before(half->refresh_stale, packet->ecr)) {
		u64 elapsed = now > half->refresh_at ? now - half->refresh_at : 0;
		u64 ticks = (elapsed - elapsed / DRIFT_PART) * half->refresh_ticks_per_sec / 1000000000ULL;

		verdict->refresh = 1;
		verdict->ecr = half->refresh_value + (u32)ticks;
	}
	int was_recording = half->flags & HALF_RECORDING;

	show_or_lower(half, packet, verdict, kind, opens && kind == REPEATED, has_limit, limit, is_up || direction == INCOMING);
	if (was_recording && !(half->flags & HALF_RECORDING))
		verdict->notice = NOTICE_OPENED;
	if (begins_stall) {
		half->flags |= HALF_DRAWN_IN;
		draw_in(half, packet, verdict);
		verdict->drawn_in = verdict->window_changed;
	}
	if (holding != HOLD_LAST || !is_held(half)) {
		half->flush_at = 0;
	} else if (kind == ADVANCING) {
		if (!half->flush_at || half->flush_at <= now)
			verdict->notice = NOTICE_HELD;
		half->flush_at = now + rules.hold_flush;
	}
}

INLINE void catch_up(struct connection *connection, const struct link *link)
{
	if (connection->epoch == link->epoch)
		return;
	connection->epoch = link->epoch;
	connection->flags &= ~(TRIP_STAMPED | TRIP_TIMED);
	if (link->is_down && !link->is_releasing) {
		connection->outgoing.flush_at = connection->incoming.flush_at = 0;
		connection->outgoing.flags &= ~HALF_REFRESH;
		connection->incoming.flags &= ~HALF_REFRESH;
	}
}

// How far the connection is: for whoever keeps the map.
INLINE void follow(struct connection *connection, const struct packet *packet, int direction)
{
	u32 fin = packet->seq + seq_len(packet);

	connection->seen_at = packet->now;
	if (!connection->began_at)
		connection->began_at = packet->now;
	if (direction == OUTGOING) {
		connection->bytes_out += packet->len;
		if (packet->flags & SYN && !(packet->flags & ACK)) {
			connection->host_isn = packet->seq;
			connection->gone |= GONE_ISN;
		}
		if (packet->flags & FIN) {
			connection->host_fin = fin;
			connection->gone |= GONE_HOST_FIN;
		}
		if (connection->gone & GONE_PEER_FIN && packet->flags & ACK && !before(packet->ack, connection->peer_fin))
			connection->gone |= GONE_PEER_FIN_ACKED;
		if (packet->flags & RST)
			connection->gone |= GONE_RESET;
		else
			connection->gone &= ~GONE_RESET;
	} else {
		connection->bytes_in += packet->len;
		if (packet->flags & FIN) {
			connection->peer_fin = fin;
			connection->gone |= GONE_PEER_FIN;
		}
		if (connection->gone & GONE_HOST_FIN && packet->flags & ACK && !before(packet->ack, connection->host_fin))
			connection->gone |= GONE_HOST_FIN_ACKED;
		if (packet->flags & RST && connection->outgoing.flags & HALF_RESET)
			connection->gone |= GONE_RESET;
	}
}

// ---- fast_path/bulk.rs ----

// Both begin with a word: as `KEY` has them, and the lines of `bulks`, and orders.
INLINE int is_same(const struct key *one, const struct key *other)
{
	const u64 *ours = (const u64 *)one, *theirs = (const u64 *)other;
	u64 differs = (one->local_port ^ other->local_port) | (one->remote_port ^ other->remote_port);

#pragma unroll
	for (u32 n = 0; n < 2 * sizeof(one->local) / 8; n++)
		differs |= ours[n] ^ theirs[n];
	return !differs;
}

// The number of the line of a connection's packets in `direction`, in `bulks`; that of the other direction is its neighbour.
INLINE u32 bulk_number(const struct key *key, int direction)
{
	u32 mixed = *(const u32 *)(key->local + 12) ^ *(const u32 *)(key->remote + 12);

	mixed ^= (u32)key->local_port << 16 | key->remote_port;
	return (mixed * 0x9e3779b1u >> (32 - BULK_PLACES_BITS)) << 1 | direction;
}

INLINE u32 kind_of(u32 state)
{
	return state & BULK_KIND;
}

INLINE int goes_on_as(const struct bulk *bulk, const struct key *key)
{
	return kind_of(bulk->state) >= BULK_DATA && is_same(&bulk->key, key);
}

// A TCP header with the usual options.
struct plain {
	u16 ports[2];
	u32 seq, ack;
	u16 offset_and_flags, window, checksum, urgent;
	u32 options, val, ecr;
};

// The TCP header of a plain segment, as `is_plain` has it; 0 if it is none, or not where it can be read at once.
INLINE const struct plain *plain_segment(const struct __sk_buff *skb, u32 frame_len, struct key *key, int direction, u32 *len)
{
	const u8 *ip = (const u8 *)(long)skb->data + frame_len, *end = (const u8 *)(long)skb->data_end;
	u8 *source = direction == OUTGOING ? key->local : key->remote;
	u8 *destination = direction == OUTGOING ? key->remote : key->local;
	const struct plain *tcp;
	u32 total;

	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		const struct iphdr *header = (const struct iphdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || ip[0] != 0x45 || header->protocol != IPPROTO_TCP ||
		    header->frag_off & bpf_htons(0x3fff))
			return 0;
		total = bpf_ntohs(header->tot_len);
		*len = total - sizeof(*header) - sizeof(*tcp);
		source[10] = source[11] = destination[10] = destination[11] = 0xff;
		__builtin_memcpy(source + 12, &header->saddr, 4);
		__builtin_memcpy(destination + 12, &header->daddr, 4);
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		const struct ipv6hdr *header = (const struct ipv6hdr *)ip;

		tcp = (const struct plain *)(header + 1);
		if ((const u8 *)(tcp + 1) > end || header->nexthdr != IPPROTO_TCP)
			return 0;
		total = bpf_ntohs(header->payload_len) + sizeof(*header);
		*len = total - sizeof(*header) - sizeof(*tcp);
		__builtin_memcpy(source, &header->saddr, 16);
		__builtin_memcpy(destination, &header->daddr, 16);
	} else {
		return 0;
	}
	// A length of less than the headers is far beyond all that there is.
	if (*len > 0xffff || frame_len + total > skb->len)
		return 0;
	if ((tcp->offset_and_flags & ~bpf_htons(PSH)) != bpf_htons(USUAL_OFFSET << 8 | ACK) || tcp->options != bpf_htonl(USUAL_OPTIONS))
		return 0;
	*(direction == OUTGOING ? &key->local_port : &key->remote_port) = tcp->ports[0];
	*(direction == OUTGOING ? &key->remote_port : &key->local_port) = tcp->ports[1];
	return tcp;
}

// Whether what an ACK says to have received has come by. The line of the data, `across`, which another processor may be writing to,
// is looked at only for what is beyond what it said last.
INLINE int has_come_by(struct bulk *acks, u32 across, u32 ack)
{
	if (!before(*(volatile u32 *)&acks->most, ack))
		return 1;
	const struct bulk *data = kind_of(acks->state) == BULK_ACKS ? bpf_map_lookup_elem(&bulks, &across) : 0;

	if (!data || kind_of(data->state) != BULK_DATA || !is_same(&data->key, &acks->key))
		return 0;
	u32 next = *(volatile u32 *)&data->next;

	if (before(next, ack))
		return 0;
	// If another processor has set another bound at this very moment, that is lost: an ACK goes by unseen, and what it ends is timed no
	// more. To have it otherwise, each such ACK would wait for the line.
	*(volatile u32 *)&acks->most = next;
	return 1;
}

// Whether timestamps go on from those that were noted, within those few ticks in which nothing is looked at.
INLINE int ticks_on(u64 noted, u64 stamps, u32 state)
{
	u32 val = bpf_ntohl((u32)stamps), ecr = bpf_ntohl((u32)(stamps >> 32));
	u8 val_left = (state >> 8) - 1 - val, ecr_left = (state >> 16) - 1 - ecr;

	return val - bpf_ntohl((u32)noted) < BULK_TICKS && ecr - bpf_ntohl((u32)(noted >> 32)) < BULK_TICKS &&
	       val_left < BULK_TICKS && ecr_left < BULK_TICKS;
}

// Whether a packet only goes on as those before, which then is noted. A function of its own for the verifier, too, which then need
// not follow what it has found through all the rest.
//
// Packets of one direction come one after the other. If they ever come on two processors at once, a note may be lost: then the
// next packet does not fit and is looked at, and what was lost counts as a gap.
__attribute__((noinline)) int goes_on(struct __sk_buff *skb, int direction)
{
	KEY key = {};
	u64 turn = turn_now();
	u32 len;

	if (!is_calm(turn, family_of(skb)))
		return 0;
	const struct plain *tcp = plain_segment(skb, turn & TURN_FRAMES ? ETH_HLEN : 0, &key, direction, &len);

	if (!tcp)
		return 0;
	u32 number = bulk_number(&key, direction);
	struct bulk *bulk = bpf_map_lookup_elem(&bulks, &number);

	if (!bulk || !goes_on_as(bulk, &key))
		return 0;
	u32 state = bulk->state, seq = bpf_ntohl(tcp->seq);
	u64 stamps = (u64)tcp->ecr << 32 | tcp->val;

	if (seq != bulk->next || (stamps != bulk->stamps && !ticks_on(bulk->stamps, stamps, state)))
		return 0;
	// What follows is not to be loaded before: there is no room for it on the stack.
	asm volatile("" ::: "memory");
	u32 ack = bpf_ntohl(tcp->ack);
	u64 said = ack | (u64)bpf_ntohs(tcp->window) << 32;

	if (kind_of(state) == BULK_DATA) {
		u32 size = segment_size(skb->gso_size, len);

		if (!len || bulk->said << 16 != said << 16 || size > bulk->said >> 48)
			return 0;
		if (direction == INCOMING && before(bulk->most, seq + len))
			return 0;
		*(volatile u32 *)&bulk->next = seq + len;
	} else {
		if (len || !before((u32)bulk->said, ack) || !has_come_by(bulk, number ^ 1, ack))
			return 0;
		*(volatile u64 *)&bulk->said = said;
	}
	*(volatile u64 *)&bulk->stamps = stamps;
	count(direction == OUTGOING ? WENT_ON : WENT_ON_IN);
	return 1;
}

// Which ACKs were shown is not known one by one any more: as many as are remembered, at the time of the last that was looked at.
INLINE void forget_shown(struct half *half, u32 ack)
{
	u64 at = half->shown_len ? half->shown_lately[(half->shown_next - 1) & (MOST_SHOWN - 1)].at : 0;

#pragma unroll
	for (int n = 0; n < MOST_SHOWN; n++) {
		half->shown_lately[n].at = at;
		half->shown_lately[n].ack = ack;
	}
	half->shown_len = MOST_SHOWN;
}

// What went on is made good: whoever looks at a connection does this first, as often as he likes.
INLINE void fold(struct connection *connection, const struct bulk *bulk, const struct key *key, int direction)
{
	struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	struct half *data = direction == OUTGOING ? &connection->incoming : &connection->outgoing;

	if (!goes_on_as(bulk, key))
		return;
	int is_data = kind_of(bulk->state) == BULK_DATA;
	u64 stamps = *(volatile u64 *)&bulk->stamps;

	acks->said_val = bpf_ntohl((u32)stamps);
	acks->said_ecr = bpf_ntohl((u32)(stamps >> 32));
	if (is_data && data->runs_len) {
		struct run *last = &data->runs[(data->runs_len - 1) & (MOST_RUNS - 1)];
		u32 from = last->end, next = *(volatile u32 *)&bulk->next;

		if (!before(from, next))
			return;
		if (direction == OUTGOING) {
			connection->bytes_out += next - from;
			connection->nxt = later(connection->nxt, next);
		} else {
			connection->bytes_in += next - from;
		}
		last->end = next;
		acks->said_nxt = later(acks->said_nxt, next);
	} else if (!is_data && acks->flags & HALF_ACKED) {
		u64 said = *(volatile u64 *)&bulk->said;
		u32 ack = said;

		if (!before(acks->acked, ack))
			return;
		if (direction == OUTGOING)
			forget_shown(acks, ack);
		acks->bytes_acked += ack - acks->acked;
		acks->acked = acks->said_ack = ack;
		acks->said_window = said >> 32;
		acks->shown = later(acks->shown, ack);
	}
}

INLINE void stop_bulk(struct bulk *bulk, const struct key *key)
{
	if (goes_on_as(bulk, key))
		__sync_lock_test_and_set(&bulk->state, BULK_IDLE);
}

// Whoever claims a line that is free writes his key: until then it is nobody's.
INLINE void free_bulk(struct bulk *bulk, const struct key *key)
{
	if (!is_same(&bulk->key, key))
		return;
	__builtin_memset(&bulk->key, 0, sizeof(bulk->key));
	__sync_lock_test_and_set(&bulk->state, BULK_FREE);
}

// How far ACKs, or data that comes in, may go on.
INLINE void bound_bulk(const struct connection *connection, struct bulk *bulk, u32 state, int direction)
{
	const struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	u32 ticks = state & ~BULK_KIND;

	if (kind_of(state) == BULK_DATA) {
		const struct half *own = &connection->outgoing;

		bulk->most = own->acked + ((u32)own->said_window << shift_or(own, 14));
	} else if (direction == INCOMING && connection->flags & TRIP_TIMED) {
		bulk->most = connection->timed - 1;
		state = ticks | BULK_TIMED;
	} else {
		bulk->most = runs_end(acks);
		state = ticks | BULK_ACKS;
	}
	// The last that is written, and all at once for whoever sees it: what goes on has to fit all the rest, too.
	__sync_lock_test_and_set(&bulk->state, state);
}

INLINE int is_quiet(const struct half *half, const struct link *link, u64 now)
{
	u32 busy = HALF_DRAWN_IN | HALF_RECORDING | HALF_CLOCKED | HALF_RESET;

	return !(half->flags & busy) && !half->flush_at && !half->sack_len && !is_held(half) && !refreshes(half, link, now);
}

// What would have to go on for packets like this one not to be looked at; BULK_IDLE if all are to be.
INLINE u32 begins_bulk(const struct connection *connection, const struct link *link, const struct packet *packet,
		       const struct verdict *verdict, int direction)
{
	const struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;
	const struct half *data = direction == OUTGOING ? &connection->incoming : &connection->outgoing;
	u32 said = HALF_ACKED | HALF_SAID | HALF_SAID_STAMPS;
	u32 end = packet->seq + packet->len;

	if (verdict->withhold || verdict->lower || verdict->window_changed || verdict->notice || verdict->ecr != packet->ecr)
		return BULK_IDLE;
	if ((acks->flags & said) != said || (acks->flags | data->flags) & HALF_ENDING || !is_quiet(acks, link, packet->now))
		return BULK_IDLE;
	if (acks->acked != packet->ack || acks->said_ack != packet->ack || acks->said_window != packet->window ||
	    acks->said_nxt != end || acks->said_val != packet->val || acks->said_ecr != packet->ecr)
		return BULK_IDLE;
	if (!packet->len)
		return verdict->advances && acks->flags & HALF_FAST && acks->runs_len ? BULK_ACKS : BULK_IDLE;
	if (!(data->flags & HALF_FAST) || !data->runs_len)
		return BULK_IDLE;
	if (direction == INCOMING && (connection->outgoing.flags & (HALF_ACKED | HALF_SAID)) != (HALF_ACKED | HALF_SAID))
		return BULK_IDLE;
	const struct run *last = &data->runs[(data->runs_len - 1) & (MOST_RUNS - 1)];
	int is_whole = last->end == end && last->size == data->longest_segment && last->size <= 0xffff;

	return is_whole ? BULK_DATA : BULK_IDLE;
}

// The timestamps at which a packet is looked at again, as the state of a line has them: those of a few ticks later, or the echo by which
// the round trip of data that comes in is measured.
INLINE u32 ends_at(const struct connection *connection, const struct packet *packet, u32 state, int direction)
{
	u32 val = packet->val + BULK_TICKS, ecr = packet->ecr + BULK_TICKS;

	if (direction == INCOMING && state == BULK_DATA && connection->flags & TRIP_STAMPED && before(connection->stamped, ecr))
		ecr = connection->stamped;
	return (val & 0xff) << 8 | (ecr & 0xff) << 16;
}

// After a packet was looked at: whether those that follow have to be.
INLINE void settle_bulk(struct connection *connection, const struct link *link, const struct key *key,
			const struct packet *packet, const struct verdict *verdict, struct bulk *own, struct bulk *other,
			int is_calm, int direction)
{
	int only_acknowledges = (packet->flags & ~PSH) == ACK;
	// Whether data flows in while an echo is waited for is known only if the next is looked at.
	int begins_to_wait = direction == OUTGOING && connection->flags & TRIP_STAMPED && connection->stamped_at == packet->now;

	if (!only_acknowledges || (begins_to_wait && kind_of(other->state) == BULK_DATA)) {
		// It may have gone on since it was folded, on another processor.
		fold(connection, other, key, !direction);
		stop_bulk(other, key);
	}
	if (!only_acknowledges) {
		stop_bulk(own, key);
		return;
	}
	int may_begin = packet->is_plain && is_calm;
	u32 state = may_begin ? begins_bulk(connection, link, packet, verdict, direction) : BULK_IDLE;

	if (state != BULK_IDLE && __sync_val_compare_and_swap(&own->state, BULK_FREE, BULK_IDLE) == BULK_FREE)
		own->key = *key;
	if (state == BULK_IDLE) {
		stop_bulk(own, key);
	} else if (is_same(&own->key, key)) {
		stop_bulk(own, key);
		own->next = packet->seq + packet->len;
		own->said = packet->ack | (u64)packet->window << 32;
		if (state == BULK_DATA)
			own->said |= (u64)(direction == OUTGOING ? &connection->incoming : &connection->outgoing)->longest_segment << 48;
		own->stamps = (u64)bpf_htonl(packet->ecr) << 32 | bpf_htonl(packet->val);
		bound_bulk(connection, own, state | ends_at(connection, packet, state, direction), direction);
	}
	if (goes_on_as(other, key))
		bound_bulk(connection, other, other->state, !direction);
}

#define TCP_ACK 8
#define TCP_WINDOW 14
#define TCP_CHECKSUM 16

INLINE void replace_u32(struct __sk_buff *skb, const struct packet *packet, u32 at, u32 from, u32 to)
{
	u32 old = bpf_htonl(from), new = bpf_htonl(to);

	bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, old, new, 4);
	bpf_skb_store_bytes(skb, at, &new, 4, 0);
}

// SACK blocks of an ACK that is lowered would say that what is held was lost: they give way to no-operations.
static __attribute__((noinline)) int blank_sack(struct __sk_buff *skb, u32 tcp_at, u32 at, u32 bytes)
{
	for (u32 n = 0; n < 34; n += 2) {
		u8 old[2];
		u8 new[2] = { 1, 1 };

		if (n >= bytes || bpf_skb_load_bytes(skb, at + n, old, 2))
			return 0;
		// In words of the checksum: what begins at an odd place has its bytes the other way round.
		u16 from = (at - tcp_at) & 1 ? (u16)old[0] << 8 | old[1] : (u16)old[1] << 8 | old[0];

		bpf_l4_csum_replace(skb, tcp_at + TCP_CHECKSUM, from, 0x0101, 2);
		bpf_skb_store_bytes(skb, at + n, new, 2, 0);
	}
	return 0;
}

INLINE void rewrite(struct __sk_buff *skb, const struct packet *packet, const struct verdict *verdict)
{
	if (verdict->refresh && verdict->ecr != packet->ecr) {
		count(REFRESHED);
		u32 at = packet->stamps_at + 4;

		if ((at - packet->tcp_at) & 1) {
			// Each byte is in the other half of its word.
			u32 old = bpf_htonl(packet->ecr), new = bpf_htonl(verdict->ecr);
			u32 from = (old & 0x00ff00ff) << 8 | (old & 0xff00ff00) >> 8;
			u32 to = (new & 0x00ff00ff) << 8 | (new & 0xff00ff00) >> 8;

			bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, from, to, 4);
			bpf_skb_store_bytes(skb, at, &new, 4, 0);
		} else {
			replace_u32(skb, packet, at, packet->ecr, verdict->ecr);
		}
	}
	if (verdict->lower) {
		count(LOWERED);
		replace_u32(skb, packet, packet->tcp_at + TCP_ACK, packet->ack, verdict->ack);
#pragma unroll
		for (int n = 0; n < MOST_BLOCKS; n++) {
			if (n < packet->sacks)
				blank_sack(skb, packet->tcp_at, packet->sack_at[n], packet->sack_bytes[n]);
		}
	}
	if (verdict->drawn_in)
		count(DRAWN_IN);
	if (verdict->window_changed) {
		u16 old = bpf_htons(packet->window), new = bpf_htons(verdict->window);

		bpf_l4_csum_replace(skb, packet->tcp_at + TCP_CHECKSUM, old, new, 2);
		bpf_skb_store_bytes(skb, packet->tcp_at + TCP_WINDOW, &new, 2, 0);
	}
}

INLINE void tell(const struct key *key, u64 now, int direction, u8 kind, u32 ack)
{
	struct notice *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);

	if (!notice) {
		count(NOTICE_LOST);
		return;
	}
	notice->at = now;
	notice->key = *key;
	notice->ack = ack;
	notice->direction = direction;
	notice->kind = kind;
	notice->unused = 0;
	bpf_ringbuf_submit(notice, 0);
}

#define STRAGGLERS (1000 * MS)
#define TELL_EVERY (100 * MS)
#define TELL_ARRIVAL_EVERY (1 * MS)

INLINE void note_incoming(const struct key *key, const struct link *link, u32 family, u64 now)
{
	int is_over = link->is_down && !link->is_releasing && now >= link->down_at + STRAGGLERS;

	if (!is_over && !link->listens)
		return;
	if (now - incoming_told_at[family & 1] < TELL_EVERY)
		return;
	incoming_told_at[family & 1] = now;
	tell(key, now, INCOMING, NOTICE_INCOMING, 0);
}

// After its connection knows of the packet.
INLINE void note_arrival(const struct key *key, const struct link *link, u32 family, u64 now)
{
	if (!link->awaits_packets || now - arrival_told_at[family & 1] < TELL_ARRIVAL_EVERY)
		return;
	arrival_told_at[family & 1] = now;
	tell(key, now, INCOMING, NOTICE_ARRIVED, 0);
}

#define TO_THIS_HOST 0 // PACKET_HOST of linux/if_packet.h
#define PORT_DNS 53

// A packet that is not TCP comes in during a silence. What a router says by itself proves nothing of the path beyond it: ICMP (with
// neighbour discovery), and DNS answers, which many routers give.
static __attribute__((noinline)) int note_other(struct __sk_buff *skb)
{
	u32 at = rules.frame_len;
	u8 protocol;
	u16 port;

	if (skb->pkt_type != TO_THIS_HOST)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return 0;
		protocol = ip.protocol;
		at += ip.ihl * 4;
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return 0;
		protocol = ip.nexthdr;
		at += sizeof(ip);
	} else {
		return 0;
	}
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		return 0;
	if (protocol == IPPROTO_UDP && (bpf_skb_load_bytes(skb, at, &port, sizeof(port)) || port == bpf_htons(PORT_DNS)))
		return 0;
	count(OTHERS_IN);
	return 0;
}

INLINE struct connection *find(const struct key *key, const struct packet *packet, int direction, int *is_new)
{
	struct connection *connection = bpf_map_lookup_elem(&connections, key);
	int is_syn = packet->flags & SYN && !(packet->flags & ACK);

	if (direction == INCOMING) {
		if (!connection)
			count(ALONE_UNKNOWN);
		return connection;
	}
	// The host's own SYN begins anew, unless it is a repetition.
	if (connection && is_syn && !(connection->gone & GONE_ISN && connection->host_isn == packet->seq)) {
		bpf_map_delete_elem(&connections, key);
		connection = 0;
	}
	// So does a SYN-ACK: the peer has asked for a new connection with the same addresses.
	if (connection && packet->flags & SYN && packet->flags & ACK &&
	    !(connection->gone & GONE_ISN && connection->host_isn == packet->seq)) {
		bpf_map_delete_elem(&connections, key);
		connection = 0;
	}
	if (connection)
		return connection;
	// Whoever is asked for connections by strangers remembers those that the host takes part in beyond its answer.
	if (packet->flags & RST || (packet->flags & SYN && packet->flags & ACK)) {
		count(ALONE_UNKNOWN);
		return 0;
	}
	u32 zero = 0;
	struct blank *anew = bpf_map_lookup_elem(&blank, &zero);

	if (!anew)
		return 0;
	*is_new = 1;
	bpf_map_update_elem(&connections, key, anew, BPF_NOEXIST);
	connection = bpf_map_lookup_elem(&connections, key);
	if (!connection)
		count(ALONE_FULL);
	return connection;
}

#define PASS -1 // TCX_NEXT: whoever else is attached has its turn

// The connection's state after a packet, and what becomes of that.
INLINE void look(struct connection *connection, const struct link *link, const struct packet *packet,
		 struct verdict *verdict, int direction)
{
	catch_up(connection, link);
	if (direction == OUTGOING) {
		trip_outgoing(connection, packet);
		note_data(&connection->incoming, packet);
		take_ack(connection, &connection->outgoing, link, packet, verdict, OUTGOING);
	} else {
		trip_incoming(connection, packet);
		note_data(&connection->outgoing, packet);
		take_ack(connection, &connection->incoming, link, packet, verdict, INCOMING);
	}
}

INLINE int handle(struct __sk_buff *skb, int direction)
{
	if (goes_on(skb, direction))
		return PASS;
	KEY key = {};
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

	if (!scratch)
		return PASS;
	struct packet *packet = &scratch->packet;
	struct verdict *verdict = &scratch->verdict;

	__builtin_memset(packet, 0, sizeof(*packet));
	__builtin_memset(verdict, 0, sizeof(*verdict));

	if (read_packet(skb, scratch, &key, direction) != READ) {
		if (direction == INCOMING && turn_now() & TURN_LISTENS)
			note_other(skb);
		return PASS;
	}
	u64 turn = turn_now();
	u32 family = family_of(skb);
	const struct link *link = link_of(turn, family);
	u32 number = bulk_number(&key, direction), across = number ^ 1;
	struct bulk *own = bpf_map_lookup_elem(&bulks, &number), *other = bpf_map_lookup_elem(&bulks, &across);

	if (!link || !own || !other)
		return PASS;
	count(direction == OUTGOING ? SEEN : SEEN_IN);
	packet->now = rules.test_clock ? skb->tstamp : bpf_ktime_get_ns();
	if (direction == INCOMING)
		note_incoming(&key, link, family, packet->now);
	int is_new = 0;
	struct connection *connection = find(&key, packet, direction, &is_new);

	if (!connection)
		return PASS;
	if (connection->gone & LEFT_ALONE) {
		bpf_spin_lock(&connection->lock);
		follow(connection, packet, direction);
		bpf_spin_unlock(&connection->lock);
		count(ALONE_POLICY);
		return PASS;
	}
	if (rules.frame_len == ETH_HLEN)
		bpf_skb_load_bytes(skb, 0, direction == OUTGOING ? connection->frame_out : connection->frame_in, ETH_HLEN);
	verdict->ack = packet->ack;
	verdict->ecr = packet->ecr;
	verdict->window = packet->window;
	struct half *acks = direction == OUTGOING ? &connection->outgoing : &connection->incoming;

	bpf_spin_lock(&connection->lock);
	if (is_new) {
		stop_bulk(own, &key);
		stop_bulk(other, &key);
	}
	fold(connection, own, &key, direction);
	fold(connection, other, &key, !direction);
	if (direction == OUTGOING || packet->flags & SYN || !is_beyond_window(&connection->outgoing, packet)) {
		u32 acked = acks->acked, was_acked = acks->flags & HALF_ACKED;

		look(connection, link, packet, verdict, direction);
		verdict->advances = was_acked && before(acked, acks->acked);
		settle_bulk(connection, link, &key, packet, verdict, own, other, is_calm(turn, family), direction);
	} else {
		catch_up(connection, link);
	}
	follow(connection, packet, direction);
	connection->withheld += verdict->withhold;
	connection->lowered += verdict->lower;
	bpf_spin_unlock(&connection->lock);

	if (direction == INCOMING)
		note_arrival(&key, link, family, packet->now);
	if (verdict->notice)
		tell(&key, packet->now, direction, verdict->notice, verdict->notice_ack);
	if (verdict->withhold) {
		count(WITHHELD);
		// A drop that the host's TCP hears of would be congestion to it. There is no interface 0.
		return direction == OUTGOING ? bpf_redirect(0, 0) : TC_ACT_SHOT;
	}
	rewrite(skb, packet, verdict);
	return PASS;
}

SEC("classifier")
int egress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_out) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	// For the host itself.
	if (skb->mark && skb->mark == rules.mark_in)
		return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
	return handle(skb, OUTGOING);
}

SEC("classifier")
int ingress(struct __sk_buff *skb)
{
	if (skb->mark && skb->mark == rules.mark_in) {
		skb->mark = 0;
		count(INJECTED);
		return PASS;
	}
	return handle(skb, INCOMING);
}

// ---- Orders: user space runs this program on one of them, which is not a packet. ----

struct order {
	u8 frame[ETH_HLEN];
	u8 direction, kind;
	struct key key;
	u32 a, b, unused;
	u64 c;
	u64 now;
};

#define ORDER_SHOW 1
#define ORDER_FLUSH 2
#define ORDER_REOPENED 3
#define ORDER_RECORD 4
#define ORDER_CLOCK 5
#define ORDER_REFRESH 6
#define ORDER_WINDOW_SHIFT 7
#define ORDER_LEAVE_ALONE 8
#define ORDER_FOLD 9      // what went on since the connection was looked at is made good
#define ORDER_FREE_BULK 10 // the same in one direction, and others may have the line

INLINE void set_flag(struct half *half, u32 flag, u32 is_on)
{
	half->flags = is_on ? half->flags | flag : half->flags & ~flag;
}

INLINE void obey(struct half *half, const struct order *order)
{
	switch (order->kind) {
	case ORDER_FLUSH:
		half->flags |= HALF_FLUSHED;
		half->flushed_from = half->shown;
		half->hold_from = order->c;
		show(half, order->now, order->a);
		half->flags &= ~HALF_DRAWN_IN;
		// What has come since is to be flushed as well.
		if (!is_held(half))
			half->flush_at = 0;
		break;
	case ORDER_SHOW:
		show(half, order->now, order->a);
		half->flags &= ~HALF_DRAWN_IN;
		break;
	case ORDER_REOPENED:
		half->flags &= ~HALF_DRAWN_IN;
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
	case ORDER_WINDOW_SHIFT:
		if (half->window_shift == UNKNOWN_SHIFT)
			half->window_shift = order->a > 14 ? 14 : order->a;
		break;
	}
}

_Static_assert(__builtin_offsetof(struct order, key) % 8 == 0 && sizeof(struct bulk) == 64, "is_same reads words");

SEC("classifier")
int order(struct __sk_buff *skb)
{
	struct order order;

	if (bpf_skb_load_bytes(skb, 0, &order, sizeof(order)))
		return 1;
	u32 number = bulk_number(&order.key, order.direction & 1), across = number ^ 1;
	struct bulk *own = bpf_map_lookup_elem(&bulks, &number), *other = bpf_map_lookup_elem(&bulks, &across);
	struct connection *connection = bpf_map_lookup_elem(&connections, &order.key);

	if (!own || !other)
		return 1;
	if (connection) {
		bpf_spin_lock(&connection->lock);
		fold(connection, own, &order.key, order.direction & 1);
		if (order.kind == ORDER_FREE_BULK) {
			free_bulk(own, &order.key);
		} else {
			fold(connection, other, &order.key, !(order.direction & 1));
			if (order.kind != ORDER_FOLD) {
				stop_bulk(own, &order.key);
				stop_bulk(other, &order.key);
			}
		}
		if (order.kind == ORDER_LEAVE_ALONE)
			connection->gone = order.a ? connection->gone | LEFT_ALONE : connection->gone & ~LEFT_ALONE;
		else if (order.direction == OUTGOING)
			obey(&connection->outgoing, &order);
		else
			obey(&connection->incoming, &order);
		bpf_spin_unlock(&connection->lock);
	} else if (order.kind == ORDER_FREE_BULK) {
		free_bulk(own, &order.key);
	}
	return !connection;
}

char _license[] SEC("license") = "Dual MIT/GPL";
