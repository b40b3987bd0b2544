//! Hosts without HIP, whose identities this host holds.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdover_hipd::files::{
    IdentityFileError, ProxiedHost, Proxy, ProxyError, generate, host_directory, read_identity, write_identity,
};
use serde_json::json;

use super::{DirectoryArgs, Failure, FileArgs, KeyKind, WRONG, reload_peers, text, wrong};
use crate::command_support::{print, print_json};

#[derive(Subcommand, Debug)]
pub(super) enum ProxyCommand {
    /// Give a host behind an interface of this one an identity, whose key this host holds.
    Add(AddArgs),
    /// Remove a host. Its key stays.
    Remove(RemoveArgs),
    /// List the hosts with their HITs.
    List(ListArgs),
}

#[derive(Args, Debug)]
pub(super) struct AddArgs {
    /// The host's name here.
    name: String,
    /// Its own address, or one in IPv4 and one in IPv6. Connections from peers go to the first one.
    #[arg(required = true)]
    addresses: Vec<IpAddr>,
    /// The interface of this host behind which all such hosts are; needed with the first one.
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// The kind of key.
    #[arg(long, value_enum, default_value_t = KeyKind::Ed25519)]
    algorithm: KeyKind,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Args, Debug)]
pub(super) struct RemoveArgs {
    /// Its name.
    name: String,
    #[command(flatten)]
    files: FileArgs,
}

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    directory: DirectoryArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &ProxyCommand) -> Result<ExitCode, Failure> {
    match command {
        ProxyCommand::Add(args) => add(args),
        ProxyCommand::Remove(args) => remove(args),
        ProxyCommand::List(args) => list(args),
    }
}

fn add(args: &AddArgs) -> Result<ExitCode, Failure> {
    let directory = &args.files.directory.dir;
    // Its router has an identity, and so a directory, first.
    read_identity(directory)?;
    let before = Proxy::read(directory)?;
    let mut proxy = match (before.clone(), &args.interface) {
        (Some(proxy), None) => proxy,
        (Some(proxy), Some(interface)) if *interface == proxy.interface => proxy,
        (Some(proxy), Some(interface)) if proxy.iter().next().is_some() => {
            let text = format!("the hosts are behind {}: {interface} cannot be a second interface", proxy.interface);
            return Err(Failure { text, status: WRONG });
        }
        (_, Some(interface)) => Proxy::new(interface).map_err(|error| wrong(&error))?,
        (None, None) => {
            let text = "missing --interface".to_owned();
            return Err(Failure { text, status: WRONG });
        }
    };
    let host = ProxiedHost { name: args.name.clone(), addresses: args.addresses.clone() };
    proxy.add(host).map_err(|error| wrong(&error))?;
    let keys = host_directory(directory, &args.name).map_err(|error| wrong(&error))?;
    // A host that was removed gets its identity back: its peers know it by that.
    let pair = match read_identity(&keys) {
        Err(IdentityFileError::None { .. }) => {
            let pair = generate(&args.algorithm.name());
            let pair = pair.ok_or_else(|| Failure { text: "unknown algorithm".to_owned(), status: WRONG })?;
            write_identity(&keys, &pair)?;
            pair
        }
        known => known?,
    };
    proxy.write(directory)?;
    if let Err(refused) = reload_peers(&args.files.socket.socket) {
        // The daemon has kept the former hosts; the next start has to find the same.
        Proxy::restore(before.as_ref(), directory)?;
        return Err(refused);
    }
    let name = &args.name;
    let hit = pair.hit();
    Ok(print(&format!(
        "{name} is {hit}\nthe key is in {}\nfor its peers: holdover hip invite --for {name}\n",
        keys.display()
    )))
}

fn remove(args: &RemoveArgs) -> Result<ExitCode, Failure> {
    let directory = &args.files.directory.dir;
    let unknown = || ProxyError::Unknown { name: args.name.clone(), known: Vec::new() };
    let mut proxy = Proxy::read(directory)?.ok_or_else(|| wrong(&unknown()))?;
    proxy.remove(&args.name).map_err(|error| wrong(&error))?;
    proxy.write(directory)?;
    reload_peers(&args.files.socket.socket)?;
    let keys = host_directory(directory, &args.name).map_err(|error| wrong(&error))?;
    Ok(print(&format!("{} is no host of the proxy any more; its key stays in {}\n", args.name, keys.display())))
}

fn list(args: &ListArgs) -> Result<ExitCode, Failure> {
    let directory = &args.directory.dir;
    let proxy = Proxy::read(directory)?;
    let mut hosts = Vec::new();
    for host in proxy.iter().flat_map(Proxy::iter) {
        let keys = host_directory(directory, &host.name).map_err(|error| wrong(&error))?;
        hosts.push((host.clone(), read_identity(&keys)?.hit()));
    }
    if args.json {
        let entry = |(host, hit): &(ProxiedHost, holdover_hip::identity::Hit)| json!({ "name": host.name, "hit": hit.to_string(), "addresses": host.addresses });
        let interface = proxy.map(|proxy| proxy.interface);
        return Ok(print_json(
            &json!({ "interface": interface, "hosts": hosts.iter().map(entry).collect::<Vec<_>>() }),
        ));
    }
    Ok(print(&text::hosts(proxy.as_ref().map(|proxy| proxy.interface.as_str()), &hosts)))
}
