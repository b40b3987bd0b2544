//! Addresses and identities of hosts.

use holdover_sim::{HostAddressing, HostIdentity, NodeId};

use super::{above_zero, link};
use crate::error::ErrorKind;
use crate::file::{self, ScenarioFile};
use crate::problem::{Problem, Under};

/// The addressing of all hosts with settings for it. A problem lies below the root of the file.
pub(crate) fn all(file: &ScenarioFile) -> Result<Vec<HostAddressing>, Problem> {
    let mut all = Vec::new();
    for (index, host) in file.hosts.iter().enumerate() {
        let identity = host.identity.as_ref().map(identity).transpose();
        let identity = identity.under("identity").under_index(index).under("host")?;
        let addresses = host.addresses.map(|word| word.0).unwrap_or_default();
        if host.addresses.is_some() || identity.is_some() {
            all.push(HostAddressing { node: NodeId(index as u32), addresses, identity });
        }
    }
    Ok(all)
}

fn identity(table: &file::IdentityTable) -> Result<HostIdentity, Problem> {
    if table.overhead.is_some() {
        let text = "there is no such field any more: the transform that \"esp\" names adds its own bytes";
        return Err(Problem::new(ErrorKind::UnknownField, text.to_owned()).under("overhead"));
    }
    let delay = table.delay.as_ref().map(link::length).transpose().under("delay")?;
    let mut identity = HostIdentity { delay, ..HostIdentity::default() };
    if let Some(esp) = table.esp {
        identity.esp = esp.0;
    }
    if let Some(associate) = table.associate {
        identity.associate = associate.0;
    }
    if let Some(time) = table.retransmit_after {
        identity.retransmit_after = above_zero(time, "retransmit_after")?;
    }
    if let Some(retries) = table.retries {
        identity.retries = retries;
    }
    Ok(identity)
}
