//! Constants of `<sys/socket.h>` and related headers, with Linux's values.

use crate::ast::Expr;

/// Values by their C library names.
const VALUES: &[(&str, i64)] = &[
    ("NULL", 0),
    ("AF_UNSPEC", 0),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("PF_INET", 2),
    ("PF_INET6", 10),
    ("SOCK_STREAM", 1),
    ("SOCK_DGRAM", 2),
    ("SOCK_RAW", 3),
    ("SOCK_NONBLOCK", 0o4000),
    ("SOCK_CLOEXEC", 0o2_000_000),
    ("IPPROTO_IP", 0),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("IPPROTO_IPV6", 41),
    ("SOL_IP", 0),
    ("SOL_SOCKET", 1),
    ("SOL_TCP", 6),
    ("SOL_IPV6", 41),
    ("SHUT_RD", 0),
    ("SHUT_WR", 1),
    ("SHUT_RDWR", 2),
    ("F_GETFL", 3),
    ("F_SETFL", 4),
    ("O_RDONLY", 0),
    ("O_WRONLY", 1),
    ("O_RDWR", 2),
    ("O_NONBLOCK", 0o4000),
    ("MSG_OOB", 1),
    ("MSG_PEEK", 2),
    ("MSG_DONTROUTE", 4),
    ("MSG_CTRUNC", 8),
    ("MSG_TRUNC", 0x20),
    ("MSG_DONTWAIT", 0x40),
    ("MSG_EOR", 0x80),
    ("MSG_WAITALL", 0x100),
    ("MSG_NOSIGNAL", 0x4000),
    ("MSG_MORE", 0x8000),
    ("MSG_ERRQUEUE", 0x2000),
    ("MSG_FASTOPEN", 0x2000_0000),
    ("MSG_ZEROCOPY", 0x400_0000),
    ("POLLIN", 1),
    ("POLLPRI", 2),
    ("POLLOUT", 4),
    ("POLLERR", 8),
    ("POLLHUP", 0x10),
    ("POLLNVAL", 0x20),
    ("POLLRDNORM", 0x40),
    ("POLLWRNORM", 0x100),
    ("POLLRDHUP", 0x2000),
    ("SIOCINQ", 0x541b),
    ("FIONREAD", 0x541b),
    ("SIOCOUTQ", 0x5411),
    ("SIOCOUTQNSD", 0x894b),
    ("SO_REUSEADDR", 2),
    ("SO_TYPE", 3),
    ("SO_ERROR", 4),
    ("SO_SNDBUF", 7),
    ("SO_RCVBUF", 8),
    ("SO_KEEPALIVE", 9),
    ("SO_OOBINLINE", 10),
    ("SO_PRIORITY", 12),
    ("SO_LINGER", 13),
    ("SO_REUSEPORT", 15),
    ("SO_RCVLOWAT", 18),
    ("SO_RCVTIMEO", 20),
    ("SO_SNDTIMEO", 21),
    ("SO_SNDBUFFORCE", 32),
    ("SO_RCVBUFFORCE", 33),
    ("SO_MARK", 36),
    ("SO_PROTOCOL", 38),
    ("SO_MAX_PACING_RATE", 47),
    ("TCP_NODELAY", 1),
    ("TCP_MAXSEG", 2),
    ("TCP_CORK", 3),
    ("TCP_KEEPIDLE", 4),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 6),
    ("TCP_SYNCNT", 7),
    ("TCP_LINGER2", 8),
    ("TCP_DEFER_ACCEPT", 9),
    ("TCP_WINDOW_CLAMP", 10),
    ("TCP_INFO", 11),
    ("TCP_QUICKACK", 12),
    ("TCP_CONGESTION", 13),
    ("TCP_USER_TIMEOUT", 18),
    ("TCP_FASTOPEN", 23),
    ("TCP_NOTSENT_LOWAT", 25),
    ("TCP_FASTOPEN_CONNECT", 30),
    ("TCP_FASTOPEN_KEY", 33),
    ("TCP_FASTOPEN_NO_COOKIE", 34),
    ("TCP_INQ", 36),
    ("TCP_CM_INQ", 36),
    ("IP_TOS", 1),
    ("IP_TTL", 2),
    ("IP_RECVTOS", 13),
    ("IP_MTU_DISCOVER", 10),
    ("IP_PMTUDISC_DONT", 0),
    ("IP_PMTUDISC_DO", 2),
    ("IP_FREEBIND", 15),
    ("IP_MTU", 14),
    ("IPV6_TCLASS", 67),
    ("IPV6_UNICAST_HOPS", 16),
    ("IPV6_MTU", 24),
    ("IPV6_V6ONLY", 26),
];

/// The states of a connection, as values of `tcpi_state`.
pub(crate) const STATES: &[(&str, i64)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
];

/// Error numbers.
const ERRNOS: &[(&str, i64)] = &[
    ("EPERM", 1),
    ("EINTR", 4),
    ("EBADF", 9),
    ("EAGAIN", 11),
    ("EWOULDBLOCK", 11),
    ("EFAULT", 14),
    ("EINVAL", 22),
    ("EPIPE", 32),
    ("ENOPROTOOPT", 92),
    ("EPROTO", 71),
    ("EOPNOTSUPP", 95),
    ("EADDRINUSE", 98),
    ("ENETUNREACH", 101),
    ("ECONNABORTED", 103),
    ("ECONNRESET", 104),
    ("EISCONN", 106),
    ("ENOTCONN", 107),
    ("ETIMEDOUT", 110),
    ("ECONNREFUSED", 111),
    ("EHOSTUNREACH", 113),
    ("EALREADY", 114),
    ("EINPROGRESS", 115),
    ("EMSGSIZE", 90),
    ("EDESTADDRREQ", 89),
];

/// The value of a name.
pub(crate) fn value(name: &str) -> Option<i64> {
    VALUES.iter().chain(STATES).chain(ERRNOS).find(|(known, _)| *known == name).map(|&(_, value)| value)
}

/// The number of an error.
pub(crate) fn errno(name: &str) -> i64 {
    ERRNOS.iter().find(|(known, _)| *known == name).map_or(0, |&(_, number)| number)
}

/// The number denoted by an expression: a literal, a name, alternatives of bits, or a list of one item.
pub(crate) fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Int(value) => Some(*value),
        Expr::Word(name) => value(name),
        Expr::Or(left, right) => Some(integer(left)? | integer(right)?),
        Expr::List(items) if items.len() == 1 => integer(&items[0]),
        Expr::Apply(name, args) if name == "htons" && args.len() == 1 => integer(&args[0]),
        _ => None,
    }
}

/// Visits every name in an expression.
pub(crate) fn names<'a>(expr: &'a Expr, visit: &mut dyn FnMut(&'a str)) {
    match expr {
        Expr::Word(name) => visit(name),
        Expr::Or(left, right) => {
            names(left, visit);
            names(right, visit);
        }
        Expr::List(items) | Expr::Apply(_, items) => items.iter().for_each(|item| names(item, visit)),
        Expr::Struct(fields) => fields.iter().for_each(|field| names(&field.value, visit)),
        Expr::Ellipsis | Expr::Int(_) | Expr::Text(_) | Expr::Address(_) => {}
    }
}
