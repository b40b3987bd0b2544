// The layout of everything that programs and user space share: flows, links, rules, notices, orders and counters.

#pragma once

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

struct key {
	u8 local[16], remote[16];
	u16 local_port, remote_port; // as on the wire
};

#define KEY struct key __attribute__((aligned(8)))

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
