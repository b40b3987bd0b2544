// The layout of everything that the flow path shares with the controller (user space, or the Rust side of the same process): flows,
// links, rules, notices, orders and counters. build.rs reads this file and writes the same in Rust: one declaration a line, sizes as
// numbers or as constants of this file.

#pragma once

#include "types.h"

#define OUTGOING 0
#define INCOMING 1

// Bytes of an Ethernet header.
#define FRAME_LEN 14

#define MOST_RUNS 8
#define OLDER_RUNS 7 // all but the newest
#define MOST_SHOWN 16
#define MOST_BLOCKS 4

// Consecutive segments of `size` bytes each; the last one may be shorter.
struct run {
	u32 start, end;
	u32 size;
};

// An ACK that the sender was shown: the last of those that share the place, and time and TSval of the first of them.
struct shown {
	u64 at;
	u32 ack;
	u32 val;
};

// A SACK block.
struct block {
	u32 start, end;
};

// Data in one direction, and its ACKs in the other, are a *half* of a flow. The *receiver* of the data makes ACKs; its *sender* is shown
// some of them. A half has three parts, ordered by how often packets need them; `struct half` (half.h) is a view of them. A time of 0 is
// never.

// For every packet, of either direction. Flags say which members of the other parts are valid (half.h).
struct half_core {
	u32 acked;          // the highest ACK of the receiver: that of its last segment, too
	u32 end;            // where the newest run of segments ends, with `runs_len`
	u32 last_nxt;       // SND.NXT after the receiver's last segment,
	u32 last_val;       // and its TSval
	u32 last_ecr;       // and TSecr
	u32 last_data_at;   // the last segment with data: low half, as that of `newest_stamp_at`
	u32 newest_stamp_at; // the first segment with the sender's newest TSval
	u32 flags;
	u16 last_window;
	u16 size;           // of the segments of the newest run
	u8 last_ttl, last_class;
	u8 window_shift;    // UNKNOWN_SHIFT until a SYN was seen
	u8 runs_len;
};

// For ACKs of something new, and for ACKs that are lowered.
struct half_acks {
	u64 advanced_at;    // the last ACK of something new
	u64 bytes_acked;    // since the first ACK that was seen
	u64 flight_since;   // the round trip in which `flight_bytes` is measured began then,
	u64 flight_from;    // when so many bytes were acknowledged
	u64 flush_at;       // held ACKs are to be flushed then; 0 without HALF_TO_FLUSH
	u32 shown;          // with HALF_BEHIND: the highest ACK that the sender was shown
	u32 start;          // of the newest run
	u32 longest_segment;
	u32 flight_bytes;   // in flight during the last round trip; 0 if unknown, or if the flow is fast
	u32 lowered;        // ACKs
	u16 shown_every;    // ACKs within so much time share an entry, in units of 65,536 ns
	u8 shown_next;      // where the next entry of `shown_lately`, a ring, goes
	u8 shown_len;
};

// For some packets.
struct half_rest {
	struct shown shown_lately[MOST_SHOWN];
	u64 hold_from;      // with HALF_HOLD_FROM: nothing is held before so many bytes are acknowledged
	u64 first_stamp_at;
	u64 refresh_at, refresh_ticks_per_sec;
	// For data that begin a run.
	u64 bytes;          // of data that had passed when `end` was `counted`, retransmissions included
	u32 counted;
	struct run older_runs[OLDER_RUNS]; // the newest one first
	u32 last_data_era, newest_stamp_era; // without HALF_DATA_ERA, HALF_STAMP_ERA: the high halves
	u32 newest_stamp;   // with HALF_STAMP_APART: the sender's newest TSval
	u32 first_stamp;
	u32 refresh_stale, refresh_value;
	u32 most_window;    // the sender is shown no larger one, in bytes
	u32 flushed_from;   // `shown` before a flush that no data has followed
	u32 withheld;       // ACKs
	u32 resumed_from;   // with HALF_RESUMED: the sender's SND.UNA
	u32 sack_len;       // with HALF_SACK
	struct block sack[MOST_BLOCKS]; // of the receiver's last ACK
	u32 unused;
};

#define UNKNOWN_SHIFT 0xff

#define HALF_ACKED 0x1        // `acked` and `shown` are valid
#define HALF_LAST 0x2         // `last_*` are valid,
#define HALF_LAST_STAMPS 0x4  // with timestamps
#define HALF_ENDING 0x8       // the sender's FIN was seen
#define HALF_RESET 0x10       // a RST of the sender was seen, and nothing of the receiver since
#define HALF_SHRUNK 0x20      // the sender was shown a smaller window than the receiver's
#define HALF_RECORDING 0x40   // ACKs of a stall are being recorded
#define HALF_CLOCKED 0x80     // recorded ACKs are being sent one by one; newer ones wait
#define HALF_FLUSHED 0x100    // `flushed_from` is valid
#define HALF_REFRESH 0x200    // `refresh_*` are valid
#define HALF_FAST 0x400       // data has come faster than FASTEST, and since then faster than STILL_FAST
#define HALF_LIMITED 0x800    // `most_window` is valid,
#define HALF_UNTIL_HEARD 0x1000 // until the next ACK of the receiver
#define HALF_RESUMED 0x2000   // the sender has retransmitted after a long silence, and the receiver has not answered yet
#define HALF_STAMPED 0x4000   // `first_stamp*` and `newest_stamp*` are valid
#define HALF_TO_FLUSH 0x8000  // `flush_at` is valid
#define HALF_ANSWERED 0x10000 // the sender was shown an ACK after its last data,
#define HALF_ANSWERED_MORE 0x20000 // and others, which share an entry of `shown_lately`
#define HALF_FORGOT 0x40000   // ACKs were shown before the first one in `shown_lately`
#define HALF_UNTIL_ACKED 0x80000 // HALF_UNTIL_HEARD ends only with an ACK of something that the sender was not shown
#define HALF_BEHIND 0x100000 // the sender was shown another ACK than `acked`: `shown`
#define HALF_SHORT 0x200000  // the newest run ends with a segment that is shorter than the others
#define HALF_SACK 0x400000   // the receiver's last ACK has SACK blocks
#define HALF_STAMP_APART 0x800000 // the sender's newest TSval is not `last_val` of the other half, but `newest_stamp`
#define HALF_DATA_ERA 0x1000000   // `last_data_at` is of the flow's era,
#define HALF_STAMP_ERA 0x2000000  // and so is `newest_stamp_at`
#define HALF_COUNTED 0x4000000    // while a packet is handled: `end` counts its data
#define HALF_HOLD_FROM 0x8000000  // `hold_from` is valid

// The state of a connection. The members are ordered by how often packets need them, in cache lines.
struct flow {
	struct bpf_spin_lock lock;
	u32 epoch; // of the link, when the last segment passed
	u16 flags, stage;
	u32 heard_at; // the low half
	u64 seen_at;  // the last segment. Its high half is the flow's *era*, 4.3 seconds long
	u32 stamped, timed;
	u32 nxt;
	u32 smoothed; // the round trip, queues included, in ns: the low half
	u32 frame_out_check, frame_in_check; // of `frame_out` and `frame_in`: 0 without
	struct half_core outgoing; // data that comes in: its ACKs go out
	struct half_core incoming; // data that goes out: its ACKs come in
	// For packets that user space sends.
	u8 frame_out[FRAME_LEN], frame_in[FRAME_LEN];
	u32 smoothed_high; // with TRIP_LONG
	// For ACKs of something new.
	struct half_acks outgoing_acks;
	struct half_acks incoming_acks;
	// For packets that measure a round trip, queues included.
	u64 latest, least;
	u64 stamped_at, timed_at;
	// Of a shell between two hosts (between.h); 0 at the host itself.
	u64 beyond; // the shortest round trip from the shell to the host; 0 without TRIP_BEYOND
	u64 far_stamped_at, far_timed_at;
	u32 far_stamped, far_timed;
	// For the owner of the flow table, and for some packets.
	u64 began_at;
	u32 host_isn, host_fin, peer_fin;
	u32 heard_era; // without TRIP_HEARD_ERA: the high half of `heard_at`
	u32 unused[2];
	struct half_rest outgoing_rest;
	struct half_rest incoming_rest;
};

// While the link is up, all packets of an established flow, of either direction, need the first 128 bytes: from `lock` to `incoming`. ACKs
// of something new also need the 64 bytes of `half_acks` of their half, and an entry of `shown_lately`: 208 bytes. Some packets of each
// round trip measure it, and need the line of `latest`; one in 4.3 seconds begins an era, and stores the high halves of times apart; and one
// in a gigabyte of data counts them (`grow_end`). src/tests/cache_lines.rs tests this.
//
// In the kernel, `nxt` begins a cache line: a value of the hash table begins 96 bytes after an aligned address (since Linux 6.1, on
// 64-bit machines). The first 32 bytes share their line with the key.
_Static_assert(__builtin_offsetof(struct flow, nxt) == 32, "the first part is half a cache line");
_Static_assert(__builtin_offsetof(struct flow, frame_out) == 128, "every packet needs 128 bytes");
_Static_assert(__builtin_offsetof(struct flow, outgoing_acks) % 64 == 32, "ACKs of something new need a cache line");
_Static_assert(__builtin_offsetof(struct flow, incoming_acks) % 64 == 32, "ACKs of something new need a cache line");
_Static_assert(sizeof(struct half_acks) == 64, "ACKs of something new need a cache line");
_Static_assert(__builtin_offsetof(struct flow, latest) % 64 == 32, "a measurement needs a cache line");
_Static_assert(__builtin_offsetof(struct flow, outgoing_rest) % 16 == 0, "an entry of `shown_lately` is in one cache line");
_Static_assert(sizeof(struct half_rest) % 16 == 0, "an entry of `shown_lately` is in one cache line");
_Static_assert(__builtin_offsetof(struct half_rest, bytes) % 64 == 32, "data that begin a run need two cache lines");
_Static_assert(__builtin_offsetof(struct half_rest, last_data_era) % 64 == 0, "data that begin a run need two cache lines");

// The 128 bytes of a connection's state that every packet needs, for tables of many connections. The rest, a `struct flow`, is separate,
// for connections that need it (entry.h).
struct side {
	u32 acked;    // as in `struct half_core`, as all that follows
	u32 end;      // where the last byte of data ended that has passed, with SIDE_END
	u32 last_nxt;
	u32 last_val, last_ecr;
	u32 bytes_acked; // no more than fit
	u16 last_window;
	u16 longest_segment;
	u8 window_shift;
	u8 flags; // HALF_* up to HALF_RESET, SIDE_END
	u8 last_ttl, last_class;
};

#define SIDE_END 0x80

struct entry {
	struct bpf_spin_lock lock;
	u32 flags; // TRIP_*, ENTRY_DETAILED
	u64 seen_at, began_at;
	u32 smoothed, beyond; // in microseconds
	u32 host_isn, host_fin, peer_fin;
	u16 stage;
	u16 link_number; // for the owner of the flow table, if it has several links to a host
	u32 timed, timed_at;         // the time in microseconds, modulo 2^32
	u32 far_timed, far_timed_at;
	struct side outgoing, incoming;
};

_Static_assert(sizeof(struct entry) == 128, "two cache lines");

#define ENTRY_DETAILED 0x80000000 // there is a `struct flow`, which is newer

#define TRIP_SAMPLED 0x1 // `smoothed`, `latest` and `least` are valid
#define TRIP_STAMPED 0x2 // the echo of `stamped`, sent at `stamped_at`, is awaited
#define TRIP_TIMED 0x4   // the ACK of `timed`, sent at `timed_at`, is awaited
#define TRIP_NXT 0x8     // `nxt` is valid
#define TRIP_FAR_STAMPED 0x10 // the echo of `far_stamped`, which the peer sent at `far_stamped_at`, is awaited
#define TRIP_FAR_TIMED 0x20   // the ACK of `far_timed`, which the peer sent at `far_timed_at`, is awaited
#define TRIP_BEYOND 0x40      // `beyond` is valid
#define TRIP_LONG 0x80        // the smoothed round trip is longer than 4.3 seconds: `smoothed_high` is not 0
#define TRIP_HEARD_ERA 0x100  // `heard_at` is of the flow's era

#define STAGE_ISN 0x1 // `host_isn` is valid
#define STAGE_HOST_FIN 0x2
#define STAGE_PEER_FIN 0x4
#define STAGE_HOST_FIN_ACKED 0x8
#define STAGE_PEER_FIN_ACKED 0x10
#define STAGE_RESET 0x20
#define STAGE_LEFT_ALONE 0x40 // by policy

// The state of a link as the controller sets it: that of an interface, or that to one mobile host, where each has its own. The orders at the end
// apply to the ACKs that come in over it.
struct link {
	u64 down_at, up_at;
	u64 stall_cut_at, stall_until; // a cut is foreseen
	u64 stall_lead; // how long before the cut a stall begins; 0: a round trip of each flow
	u64 expires_at; // from then on every packet passes as it is
	u32 epoch;      // counts link-downs and releases
	u8 is_down, has_up;
	u8 is_releasing; // up, and held ACKs are not released yet
	u8 has_stall;
	u8 awaits_packets; // incoming packets are reported
	u8 listens;        // the link is silent: the next incoming packet is reported
	u8 holds;            // HOLDS_*: what is held back while the link is up
	u8 limits_window;    // senders are shown no larger window than `most_window`
	u8 drops_duplicates; // duplicate ACKs that report nothing else are withheld for a second (RFC 5681 section 2)
	u8 unused[3];
	u32 held_bytes;  // of HOLDS_BYTES
	u32 most_window; // in bytes; 0 shuts the window
};

#define HOLDS_SEGMENTS 0 // as many segments as the rules say
#define HOLDS_NOTHING 1
#define HOLDS_BYTES 2    // exactly `held_bytes` (M-TCP section 4.1 has one)
#define HOLDS_NEWEST 3   // the newest ACK while data are outstanding (BUFFER-FREEZE section III.B)

// The state that every packet reads in the kernel, in one cache line.
#define STATUS_NUMBER 1 // which of two links is the current one
#define STATUS_CALM 2   // nothing happens to the link of IPv4, nor is about to
#define STATUS_FRAMES 4 // packets are Ethernet frames
#define STATUS_LISTENS 8 // the link is silent
#define STATUS_CALM_IPV6 16 // as STATUS_CALM, of IPv6

// Settings that are constant while the programs are loaded.
struct rules {
	u64 hold_after_bytes; // nothing is held before so many bytes are acknowledged
	u64 hold_pause;       // nothing is held for so long after link-up, in ns
	u64 hold_flush;       // held ACKs are flushed after so long without a newer one, in ns
	u64 refresh_for;      // echoes are refreshed for so long after link-up, in ns
	u32 hold_segments;    // 0: nothing is held back
	u32 holds;            // whether anything is ever withheld
	u32 frame_len;        // bytes before the IP header: FRAME_LEN or 0
	u32 mark_out;         // of packets that user space sends to the link
	u32 mark_in;          // and to the host itself
	u32 test_clock;       // the time is the packet's own, for tests
	u32 detail_after;     // a flow has details from so many acknowledged bytes on, where entries are used
	u32 unused;
};

// The name of a flow: IPv4 addresses are mapped (RFC 4291 section 2.5.5.2), ports are in network byte order.
struct key {
	u8 local[16], remote[16];
	u16 local_port, remote_port;
};

// Header prediction for one direction of a flow: one cache line, written without a lock. Two neighbouring lines, one a direction, make
// a place; the flow that claims a place keeps it until the controller frees it.
struct prediction {
	struct key key;
	u32 next;    // SEG.SEQ of the next segment
	u64 last;    // ACK in bits 0 to 31, window in bits 32 to 47, size of whole segments in bits 48 to 63
	u64 stamps;  // timestamps in network byte order: TSval in the low half, TSecr in the high
	u32 limit;   // PREDICT_DATA coming in: where the window ends; ACKs: the highest that may follow
	u32 state;   // PREDICT_*; from bit 8 and bit 16 on the low bytes of the TSval and TSecr that end the prediction
};

#define PREDICT_FREE 0
#define PREDICT_IDLE 1
#define PREDICT_DATA 2  // segments with data, all with the same ACK and window
#define PREDICT_ACKS 3  // segments without data, each acknowledging more
#define PREDICT_TIMED 4 // the same before the one that ends a round trip
#define PREDICT_KIND 0xff

#define PREDICTION_PLACES_BITS 6

// After link-down, packets that were in flight may still arrive for so long, in ns.
#define LATE_ARRIVALS 1000000000

// How long before a predicted cut a stall begins, in ns. USUAL_LEAD is used before the first sample of the round trip: it was enough on
// Linux 6.18 with a round trip of 50 ms and a queue.
#define USUAL_LEAD 150000000
#define LONGEST_LEAD 1000000000

// Something for the controller to do.
struct notice {
	u64 at;
	struct key key;
	u32 ack;
	u8 direction, kind;
	u16 unused[3];
};

// How long after one byte of an ACK the rest of it is shown, in ns: two packets, so that the sender handles one after the other.
#define CUT_FLUSH 5000000

#define NOTICE_HELD 1     // an ACK is held where none was: to be flushed
#define NOTICE_STALLED 2  // an ACK was withheld because a cut is near
#define NOTICE_QUEUED 3   // an ACK waits behind those that are being clocked out
#define NOTICE_OPENED 4   // the sender was shown an ACK as it is: recorded ones are obsolete
#define NOTICE_INCOMING 5 // a packet has come in over a link that is down, or after a silence
#define NOTICE_ARRIVED 6  // a packet has come in while `awaits_packets`
#define NOTICE_PROBED 7   // a sender asks for a window that is shut (RFC 9293 section 3.8.6.1)
#define NOTICE_CUT 9      // an ACK is shown in part: the rest is to be flushed after CUT_FLUSH
#define NOTICE_HEARD 8    // an ACK has come that ends HALF_UNTIL_HEARD: the sender was shown the receiver's window

// A change of a flow, asked for by the controller. The meaning of `a`, `b` and `c` is that of the kind.
struct order {
	u8 frame[FRAME_LEN]; // the programs get orders as frames
	u8 direction, kind;
	struct key key;
	u32 a, b, unused;
	u64 c;
	u64 now;
};

#define ORDER_SHOW 1         // the sender was shown an ACK of `a`
#define ORDER_FLUSH 2        // the same for a flush: nothing is held before `c` bytes are acknowledged
#define ORDER_REOPENED 3     // the sender was shown the receiver's window
#define ORDER_RECORD 4       // record the ACKs of a stall: `a`
#define ORDER_CLOCK 5        // clock out the recorded ACKs: `a`
#define ORDER_REFRESH 6      // replace echoes up to `a` by `b`, which counts `c` ticks a second from `now` on
#define ORDER_WINDOW_SHIFT 7 // the receiver's window shift is `a`
#define ORDER_LEAVE_ALONE 8  // leave the flow alone: `a`
#define ORDER_FOLD 9         // fold predicted packets into the flow
#define ORDER_FREE 10        // fold those of one direction, and free its prediction
#define ORDER_LIMIT_WINDOW 11 // show no larger window than `a` bytes: `b` is LIMIT_*
#define ORDER_COMPACT 12     // keep the entry of the flow table only, if nothing is held

#define LIMIT_NONE 0       // any window
#define LIMIT_ALWAYS 1
#define LIMIT_UNTIL_HEARD 2 // until the receiver's next ACK
#define LIMIT_UNTIL_ACKED 3 // until its next ACK of something new

// The treatment of a flow's ACKs.
enum holding {
	HOLD_NOTHING, // they pass
	HOLD_LAST,    // the last whole segments are held back
	HOLD_ALL,     // none passes
};

// The effect of a packet on a flow table (lifecycle.h, between.h).
enum finding {
	FLOW_UNSEEN, // it belongs to no flow, and passes as it is
	FLOW_KNOWN,  // it belongs to the flow of its key
	FLOW_BEGINS, // it begins a flow; an earlier one of the same key ends
	FLOW_ENDS,   // an earlier flow of the same key ends, and it belongs to none
};

// Counters of the shell in the kernel, in packets.
enum counter {
	SEEN,             // outgoing TCP packets that were looked at
	LOWERED,          // ACKs that were lowered
	WITHHELD,         // ACKs that were withheld
	REFRESHED,        // echoed timestamps that were replaced
	SHRUNK,           // windows that were shrunk before a cut
	INJECTED,         // packets of user space
	ALONE_FRAGMENT,   // left alone: fragments
	ALONE_VLAN,       // left alone: tagged for a VLAN
	ALONE_HEADER,     // left alone: IPv6 extension headers that are too many or unknown
	ALONE_MALFORMED,  // left alone: malformed
	ALONE_UNKNOWN,    // left alone: flows on which the host has sent nothing yet
	ALONE_FULL,       // left alone: flows without room in the table
	ALONE_POLICY,     // left alone: flows that a policy leaves alone
	ALONE_SIGNED,     // left alone: TCP-MD5 and TCP-AO
	ALONE_MULTIPATH,  // left alone: MPTCP
	NOTICE_LOST,      // notices without room in the ring
	PREDICTED,        // outgoing TCP packets that header prediction took
	SEEN_IN,          // as SEEN, incoming
	PREDICTED_IN,     // as PREDICTED, incoming
	OTHERS_IN,        // other incoming packets from beyond the link, counted during a silence only
	LIMITED,          // windows that were limited by order
	PROBED,           // zero-window probes that were noticed
	DETAILED,         // flows that were given details (entry.h)
	COUNTERS,         // how many there are
};
