//! The means that carry a connection: daemons of `holdover hip` or WireGuard on hosts, or the kernel's MPTCP.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdover_hipd::control;
use holdover_hipd::status::PeerStatus;
use holdover_host::Process;
use holdover_host::control_client::answers;
use holdover_host::process::{LogTo, WaitError};
use holdover_testbed::multipath::{self, Role};
use holdover_testbed::{Namespace, NamespaceError, Netlink, NetlinkError, wireguard};
use rustix::io::Errno;

/// For a daemon to be up, or an association to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// A daemon could not be started.
#[derive(Debug, thiserror::Error)]
pub enum MeansError {
    #[error("{what}")]
    Failed { what: String, source: io::Error },
    #[error("`{command}`: {output}")]
    Command { command: String, output: String },
    #[error("{what}: {error}")]
    Late { what: &'static str, error: WaitError },
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> MeansError {
    move |source| MeansError::Failed { what: what.into(), source }
}

/// A directory of a run's own, removed with it.
pub(super) struct Directory(PathBuf);

impl Directory {
    /// At the place that `directory` has for its name.
    pub(super) fn new(directory: fn(&str) -> PathBuf) -> Result<Self, MeansError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = directory(&format!("moves-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).map_err(failed(path.display().to_string()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a daemon in a namespace, which is to be started by the thread that drops it.
fn start(namespace: &Namespace, command: Command, log: PathBuf) -> Result<Process, MeansError> {
    let named = command.get_program().to_string_lossy().into_owned();
    Process::start_confined(namespace, command, LogTo::File(log)).map_err(failed(named))
}

/// Waits until `condition` is true; the error says `what` is not.
fn until(process: &mut Process, what: &'static str, condition: impl FnMut() -> bool) -> Result<(), MeansError> {
    process.wait_until(PATIENCE, condition).map_err(|error| MeansError::Late { what, error })
}

/// A host with `holdover hip`.
pub(super) struct HipHost {
    program: PathBuf,
    directory: PathBuf,
    name: &'static str,
    addresses: Vec<IpAddr>,
    serves: Option<&'static str>,
    daemon: Option<Process>,
}

impl HipHost {
    /// With a fresh identity, known at these addresses.
    pub(super) fn new(
        program: &Path,
        directory: &Directory,
        name: &'static str,
        addresses: &[IpAddr],
        serves: Option<&'static str>,
    ) -> Result<Self, MeansError> {
        let path = directory.0.join(name);
        fs::create_dir(&path).map_err(failed(path.display().to_string()))?;
        let host = Self {
            program: program.to_owned(),
            directory: path,
            name,
            addresses: addresses.to_vec(),
            serves,
            daemon: None,
        };
        host.run(&["keygen"])?;
        Ok(host)
    }

    /// Each knows the other from now on.
    pub(super) fn introduce(&self, other: &Self) -> Result<(), MeansError> {
        for (host, peer) in [(self, other), (other, self)] {
            let mut words = ["invite", "--without-secret", "--name", peer.name].map(str::to_owned).to_vec();
            words.extend(peer.addresses.iter().flat_map(|it| ["--address".to_owned(), it.to_string()]));
            words.extend(peer.serves.iter().flat_map(|it| ["--serves".to_owned(), (*it).to_owned()]));
            words.extend(["--socket".to_owned(), peer.socket().display().to_string()]);
            let invitation = peer.run(&words)?;
            let socket = host.socket().display().to_string();
            host.run(&["join", invitation.trim(), "--socket", &socket])?;
        }
        Ok(())
    }

    /// Starts the daemon. Without mechanisms for TCP it neither wakes connections (`--no-wake`) nor holds them open: behind a window of zero TCP
    /// has another timer, and does not count its retransmissions.
    pub(super) fn up(&mut self, namespace: &Namespace, has_mechanisms: bool) -> Result<(), MeansError> {
        if !has_mechanisms {
            let settings = self.directory.join("hip.toml");
            let written = fs::write(&settings, "[user_timeout]\nenabled = false\n");
            written.map_err(failed(settings.display().to_string()))?;
        }
        let mut command = Command::new(&self.program);
        command.args(["hip", self.serves.unwrap_or("up"), "--verbose", "--dir"]).arg(&self.directory);
        command.arg("--socket").arg(self.socket()).args((!has_mechanisms).then_some("--no-wake"));
        let mut daemon = start(namespace, command, self.directory.join("log"))?;
        let is_up = daemon.wait_until_ok(PATIENCE, || answers(&self.socket()));
        is_up.map_err(|error| MeansError::Late { what: "`holdover hip` is not up", error })?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Waits until a peer is as it should be.
    pub(super) fn wait_for(
        &mut self,
        peer: &str,
        what: &'static str,
        is_so: impl Fn(&PeerStatus) -> bool,
    ) -> Result<(), MeansError> {
        let socket = self.socket();
        let is_so = || {
            let status = control::status(&socket);
            status.is_ok_and(|status| status.peers.iter().any(|it| it.name.as_deref() == Some(peer) && is_so(it)))
        };
        match &mut self.daemon {
            Some(daemon) => until(daemon, what, is_so),
            None => Ok(()),
        }
    }

    pub(super) fn hit(&self) -> Result<Ipv6Addr, MeansError> {
        let words = self.run(&["id"])?;
        words.trim().parse().map_err(|_| MeansError::Command { command: "hip id".to_owned(), output: words })
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    /// Runs `holdover hip` with these arguments and the directory of this host; returns its output.
    fn run<S: AsRef<str>>(&self, words: &[S]) -> Result<String, MeansError> {
        let mut command = Command::new(&self.program);
        command.arg("hip").args(words.iter().map(AsRef::as_ref)).arg("--dir").arg(&self.directory);
        let output = command.output().map_err(failed(self.program.display().to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(MeansError::Command { command: format!("holdover hip {}", words.join(" ")), output })
    }
}

/// The two hosts' keys, private and public, made for this grid (`openssl genpkey -algorithm X25519`).
const KEYS: [[&str; 2]; 2] = [
    [
        "3081251b386b14be9b0e1a8f359f6b1a0ea4aab4cd2e4e9f9c2fcd1f2067c075",
        "95ce78e089991500f11e56f6460b386667bf761dc7813b538c98dac158c7594e",
    ],
    [
        "70de99ebf32fa6f578b9116b8550676959de49b93c0a0f321ba34f377ee65f6f",
        "ad11b0093bebf56800e338892598db0fe91f8f18f9ca3b7c554c889ecefa8554",
    ],
];
const PORT: u16 = 51_820;
/// As behind translators; what guides advise.
pub(super) const KEEP_ALIVE_S: u16 = 25;
/// In the tunnel.
const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// The overhead of WireGuard over IPv6.
const TUNNEL_MTU: u32 = 1420;

/// `wireguard-go` on two hosts.
pub(super) struct WireGuardGo {
    _daemons: Vec<Process>,
}

impl WireGuardGo {
    /// The first host knows the second one's address.
    pub(super) fn start(
        program: &Path,
        directory: &Directory,
        hosts: [&Namespace; 2],
        server: IpAddr,
    ) -> Result<Self, MeansError> {
        let mut daemons = Vec::new();
        for (index, namespace) in hosts.into_iter().enumerate() {
            let name = format!("wg{index}");
            let run = directory.0.join(&name);
            fs::create_dir(&run).map_err(failed(run.display().to_string()))?;
            // Its control socket has a fixed place in /run, which is this directory for it alone.
            let mut command = Command::new("sh");
            command.args(["-c", "mount --bind \"$0\" /run && exec \"$1\" --foreground \"$2\""]);
            command.arg(&run).arg(program).arg(&name);
            let mut daemon = start(namespace, command, directory.0.join(format!("{name}.log")))?;
            let socket = run.join(format!("wireguard/{name}.sock"));
            until(&mut daemon, "`wireguard-go` is not up", || UnixStream::connect(&socket).is_ok())?;
            let endpoint = (index == 0).then_some(SocketAddr::new(server, PORT));
            configure(&socket, index, endpoint)?;
            namespace.enter(|| set_up_tunnel(namespace, &name, index))??;
            daemons.push(daemon);
        }
        Ok(Self { _daemons: daemons })
    }
}

/// The server's address in WireGuard's tunnels.
pub(super) const fn server_in_tunnel() -> IpAddr {
    IpAddr::V4(INSIDE[1])
}

/// In the namespace of the calling thread.
fn set_up_tunnel(namespace: &Namespace, name: &str, index: usize) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open(namespace)?;
    netlink.set_mtu(name, TUNNEL_MTU)?;
    netlink.add_address(name, INSIDE[index].into(), 24)?;
    netlink.set_up(name)
}

/// The name of the interface of the kernel's WireGuard.
const KERNELS: &str = "wg";

/// Why this kernel has no WireGuard, if it has none.
///
/// # Errors
/// The kernel refuses the interface for another reason than that it does not know its type.
pub(super) fn lacks_wireguard() -> Result<Option<String>, MeansError> {
    let added = Namespace::new("wireguard")?.enter(|| wireguard::add(KERNELS))?;
    absence(added).map_err(failed("an interface of the kernel's WireGuard"))
}

/// Why the kernel does not know the type of an interface, if it does not.
fn absence(added: io::Result<()>) -> io::Result<Option<String>> {
    match added {
        Ok(()) => Ok(None),
        // `rtnl_newlink` answers `EOPNOTSUPP`; `ENODEV` comes from modules without what they need.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::NODEV)) => {
            Ok(Some(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Starts the kernel's WireGuard on two hosts; it ends with their namespaces. The first host knows the second one's address.
pub(super) fn start_wireguard(hosts: [&Namespace; 2], server: IpAddr) -> Result<(), MeansError> {
    let add = |index: usize| {
        let prepare = || {
            wireguard::add(KERNELS)?;
            wireguard::set_up(KERNELS, [index as u8 + 1; 32], PORT)
        };
        hosts[index].enter(prepare)?.map_err(failed("the kernel's WireGuard"))
    };
    let public = [add(0)?, add(1)?];
    for (index, namespace) in hosts.into_iter().enumerate() {
        let peer = public[1 - index];
        let introduce = || {
            let endpoint = (index == 0).then_some(SocketAddr::new(server, PORT));
            wireguard::add_peer(KERNELS, peer, endpoint, (INSIDE[1 - index].into(), 32))?;
            if index == 0 { wireguard::set_keep_alive(KERNELS, peer, KEEP_ALIVE_S) } else { Ok(()) }
        };
        namespace.enter(introduce)?.map_err(failed("a peer of the kernel's WireGuard"))?;
        namespace.enter(|| set_up_tunnel(namespace, KERNELS, index))??;
    }
    Ok(())
}

/// The version that this program prints.
pub(super) fn wireguard_version(program: &Path) -> Result<String, MeansError> {
    let output = Command::new(program).arg("--version").output().map_err(failed(program.display().to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().next().and_then(|line| line.strip_prefix("wireguard-go "));
    let unknown = || MeansError::Command { command: format!("{} --version", program.display()), output: text.clone() };
    Ok(version.ok_or_else(unknown)?.trim().to_owned())
}

/// Configures a daemon by the protocol of `wireguard-go`'s socket.
fn configure(socket: &Path, index: usize, endpoint: Option<SocketAddr>) -> Result<(), MeansError> {
    let (own, peer) = (KEYS[index][0], KEYS[1 - index][1]);
    let mut text = format!("set=1\nprivate_key={own}\nlisten_port={PORT}\npublic_key={peer}\n");
    if let Some(endpoint) = endpoint {
        text += &format!("endpoint={endpoint}\npersistent_keepalive_interval={KEEP_ALIVE_S}\n");
    }
    text += &format!("allowed_ip={}/32\n\n", INSIDE[1 - index]);
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(text.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        Ok(answer)
    };
    let answer: String = ask().map_err(failed("the socket of `wireguard-go`"))?;
    if answer.trim() == "errno=0" {
        return Ok(());
    }
    Err(MeansError::Command { command: "wireguard-go".to_owned(), output: answer })
}

/// Lets the kernels use several addresses. The server's is announced.
pub(super) fn allow_multipath(hosts: [&Namespace; 2], server: IpAddr) -> Result<(), MeansError> {
    let [mobile, fixed] = hosts;
    mobile.enter(|| multipath::set_limits(8))?.map_err(failed("MPTCP"))?;
    let announce = || {
        multipath::set_limits(8)?;
        multipath::add_endpoint(server, Role::Announced)
    };
    fixed.enter(announce)?.map_err(failed("MPTCP"))
}

/// The mobile host has got an address, or loses one: what NetworkManager does then.
pub(super) fn change_endpoint(mobile: &Namespace, address: IpAddr, is_there: bool) -> Result<(), MeansError> {
    let change = || {
        if is_there { multipath::add_endpoint(address, Role::Connecting) } else { multipath::remove_endpoint(address) }
    };
    mobile.enter(change)?.map_err(failed("an endpoint of MPTCP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_types_of_interfaces_are_absent() {
        assert!(absence(Ok(())).unwrap().is_none());
        for errno in [Errno::OPNOTSUPP, Errno::NODEV] {
            assert!(absence(Err(errno.into())).unwrap().is_some());
        }
        for errno in [Errno::PERM, Errno::NOMEM, Errno::BUSY, Errno::EXIST] {
            assert_eq!(Errno::from_io_error(&absence(Err(errno.into())).unwrap_err()), Some(errno));
        }
    }
}
