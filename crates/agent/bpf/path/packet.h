// A TCP segment as the decisions see it, and their verdict on it.

#pragma once

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
