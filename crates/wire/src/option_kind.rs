//! The numbers of TCP options.

/// The kinds of TCP options that Holdover reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum OptionKind {
    /// End of option list.
    End = 0,
    /// Padding.
    NoOperation = 1,
    /// Maximum segment size.
    MaximumSegmentSize = 2,
    /// Window scale.
    WindowScale = 3,
    /// SACK permitted.
    SackPermitted = 4,
    /// SACK.
    Sack = 5,
    /// Timestamps.
    Timestamps = 8,
    /// The signature of TCP-MD5 (RFC 2385), read as [`TcpOptions::is_signed`](crate::TcpOptions::is_signed).
    Md5Signature = 19,
    /// User timeout.
    UserTimeout = 28,
    /// The signature of TCP-AO (RFC 5925), read as [`TcpOptions::is_signed`](crate::TcpOptions::is_signed).
    Authentication = 29,
    /// Multipath TCP (RFC 8684), read as [`TcpOptions::is_multipath`](crate::TcpOptions::is_multipath).
    Multipath = 30,
    /// Fast Open.
    FastOpen = 34,
    /// Accurate ECN, order 0.
    AccurateEcn0 = 172,
    /// Accurate ECN, order 1.
    AccurateEcn1 = 174,
    /// Experimental 1.
    Experimental1 = 253,
    /// Experimental 2.
    Experimental2 = 254,
}
