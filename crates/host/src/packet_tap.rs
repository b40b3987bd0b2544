//! Receive-only packet sockets (`packet(7)`) for what this host sends out of one interface.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Copies of the short packets that leave by one interface, from the IP header on.
#[derive(Debug)]
pub struct PacketTap {
    socket: OwnedFd,
}

/// Bytes: room for some hundred packets. What does not fit is not copied.
const RECEIVE_BUFFER: u32 = 64 << 10;

impl PacketTap {
    /// Copies outgoing packets of at most `longest` bytes, of the interface with this index in the calling thread's
    /// network namespace, from now on.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_RAW`, or there is no such interface.
    pub fn open(index: i32, longest: u32) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory of ours is touched.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        let this = Self { socket: unsafe { OwnedFd::from_raw_fd(fd) } };
        // Nothing is received before the bind below.
        this.set(libc::SO_ATTACH_FILTER, &Filter::new(&mut short_and_outgoing(longest)))?;
        this.set(libc::SO_RCVBUF, &RECEIVE_BUFFER)?;
        // SAFETY: all zero is a valid `sockaddr_ll`.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        // Taps of one protocol do not see what goes out.
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let (place, len) = (std::ptr::from_ref(&address).cast(), size_of_val(&address) as u32);
        // SAFETY: the address lives during the call, with the length that is given.
        let bound = unsafe { libc::bind(this.socket.as_raw_fd(), place, len) };
        if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(this) }
    }

    /// The next packet, cut to the buffer. Never waits: `None` if there is none.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        // SAFETY: the buffer lives during the call, with its length.
        let len = unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(len) {
            Ok(len) => Ok(Some(&buffer[..len])),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let (place, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
        // SAFETY: the value has the option's type, and lives during the call.
        let set = unsafe { libc::setsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, option, place, len) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// A `struct sock_fprog` that borrows its instructions.
#[repr(transparent)]
struct Filter<'a>(libc::sock_fprog, std::marker::PhantomData<&'a mut [libc::sock_filter]>);

impl<'a> Filter<'a> {
    fn new(instructions: &'a mut [libc::sock_filter]) -> Self {
        let len = instructions.len() as u16;
        Self(libc::sock_fprog { len, filter: instructions.as_mut_ptr() }, std::marker::PhantomData)
    }
}

/// A classic BPF program (`linux/filter.h`) that takes outgoing packets of at most `longest` bytes.
fn short_and_outgoing(longest: u32) -> [libc::sock_filter; 6] {
    let instruction = |code: u32, k: u32, if_true: u8, if_false: u8| libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k,
    };
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, packet_type, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::from(libc::PACKET_OUTGOING), 0, 3),
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, longest, 1, 0),
        instruction(libc::BPF_RET | libc::BPF_K, longest, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ]
}
