//! The send buffer's size: fixed, or growing with the congestion window as in Linux.

use super::Connection;

/// Linux `MAX_TCP_HEADER`, `skb_shared_info` and `sk_buff` on 64-bit machines, in bytes.
const HEADERS: u32 = 320;
const SHARED_INFO: u32 = 320;
const DESCRIPTOR: u32 = 256;
/// Linux `TCP_INIT_CWND`: the buffer has room for two such windows from the handshake on.
const FIRST_SEGMENTS: u32 = 10;

impl Connection {
    /// How many bytes may wait to be sent or acknowledged before [`Connection::write`] takes no more: [`crate::SendConfig::buffer_bytes`], or more
    /// if it has grown up to [`crate::SendConfig::max_buffer_bytes`].
    pub fn send_buffer_bytes(&self) -> u32 {
        let send = &self.config.send;
        send.buffer_bytes.max(self.snd.grown_buffer.min(send.max_buffer_bytes))
    }

    /// Bytes that [`Self::write`] would take now.
    pub fn write_room(&self) -> usize {
        (self.send_buffer_bytes() as usize).saturating_sub(self.send_queue_len())
    }

    /// The buffer grows if it limits the sender: the application has filled it, and its contents do not fill the congestion window (Linux
    /// `tcp_should_expand_sndbuf`).
    #[inline]
    pub(super) fn grow_send_buffer_if_needed(&mut self) {
        if !self.snd.buffer_was_full || self.send_buffer_bytes() >= self.config.send.max_buffer_bytes {
            return;
        }
        let unsent = (self.unsent.len() as u32).div_ceil(self.snd.mss.max(1));
        if self.queue.in_flight() + unsent < self.congestion.cwnd() {
            self.grow_send_buffer();
        }
    }

    /// To twice the congestion window in segments (with BBR, three times), each with the memory that one of the peer's MSS occupies in
    /// Linux (`tcp_sndbuf_expand`, `bbr_sndbuf_expand`): a smaller path MTU does not count.
    pub(super) fn grow_send_buffer(&mut self) {
        let memory =
            (self.snd.mss.max(self.snd.peer_mss.into()) + HEADERS + SHARED_INFO).next_power_of_two() + DESCRIPTOR;
        let segments = self.congestion.cwnd().max(FIRST_SEGMENTS).max(self.recovery.reordering.saturating_add(1));
        let windows = if self.config.congestion.algorithm.is_model_based() { 3 } else { 2 };
        let bytes = segments.saturating_mul(windows).saturating_mul(memory);
        self.snd.grown_buffer = self.snd.grown_buffer.max(bytes.min(self.config.send.max_buffer_bytes));
    }
}
