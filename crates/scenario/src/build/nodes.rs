//! Hosts and routers.

use std::collections::{BTreeMap, BTreeSet};

use holdover_sim::{NodeConfig, NodeId, Role};
use holdover_tcp::Config;

use super::{check_name, check_new, stack};
use crate::error::ErrorKind;
use crate::file::ScenarioFile;
use crate::problem::{Problem, Under};

/// The nodes of a world by name: hosts first, then routers, each in the order of the file.
pub(crate) struct Nodes {
    pub(crate) configs: Vec<NodeConfig>,
    by_name: BTreeMap<String, NodeId>,
    /// The stack of each host.
    stacks: Vec<Config>,
}

impl Nodes {
    pub(crate) fn new(file: &ScenarioFile, default_stack: &Config) -> Result<Self, Problem> {
        let mut nodes = Self { configs: Vec::new(), by_name: BTreeMap::new(), stacks: Vec::new() };
        for (index, host) in file.hosts.iter().enumerate() {
            nodes.add(&host.name, Role::Host).under_index(index).under("host")?;
            let stack = stack::changed(default_stack, host.stack.as_ref());
            nodes.stacks.push(stack.under("stack").under_index(index).under("host")?);
        }
        for (index, router) in file.routers.iter().enumerate() {
            nodes.add(&router.name, Role::Router).under_index(index).under("router")?;
        }
        Ok(nodes)
    }

    fn add(&mut self, name: &str, role: Role) -> Result<(), Problem> {
        check_name(name)?;
        check_new("host or router", name, self.by_name.keys().map(String::as_str))?;
        self.by_name.insert(name.to_owned(), NodeId(self.configs.len() as u32));
        self.configs.push(NodeConfig { name: name.to_owned(), role });
        Ok(())
    }

    /// The host or router called `name`.
    pub(crate) fn node(&self, name: &str) -> Result<NodeId, Problem> {
        let known = || self.configs.iter().map(|node| node.name.as_str());
        self.by_name.get(name).copied().ok_or_else(|| Problem::unknown_name("host or router", name, known()))
    }

    /// The host called `name`.
    pub(crate) fn host(&self, name: &str) -> Result<NodeId, Problem> {
        let hosts = self.configs.iter().filter(|node| node.role == Role::Host).map(|node| node.name.as_str());
        match self.by_name.get(name) {
            Some(&id) if self.role(id) == Role::Host => Ok(id),
            Some(_) => {
                let message = format!("\"{name}\" is a router; applications run on hosts");
                Err(Problem::new(ErrorKind::BadValue, message))
            }
            None => Err(Problem::unknown_name("host", name, hosts)),
        }
    }

    pub(crate) fn name(&self, id: NodeId) -> &str {
        &self.configs[id.0 as usize].name
    }

    pub(crate) fn role(&self, id: NodeId) -> Role {
        self.configs[id.0 as usize].role
    }

    /// The stack of a host.
    pub(crate) fn stack(&self, host: NodeId) -> &Config {
        &self.stacks[host.0 as usize]
    }

    /// The router called `name`.
    pub(crate) fn router(&self, name: &str) -> Result<NodeId, Problem> {
        let routers = self.configs.iter().filter(|node| node.role == Role::Router).map(|node| node.name.as_str());
        match self.by_name.get(name) {
            Some(&id) if self.role(id) == Role::Router => Ok(id),
            Some(_) => Err(Problem::new(ErrorKind::BadValue, format!("\"{name}\" is a host; this takes a router"))),
            None => Err(Problem::unknown_name("router", name, routers)),
        }
    }

    /// Checks that every node has a link or is in a cell.
    pub(crate) fn check_neighbours(&self, file: &ScenarioFile) -> Result<(), Problem> {
        let linked = file.links.iter().flat_map(|link| &link.between);
        let in_cells = file.cells.iter().map(|cell| &cell.base).chain(file.mobiles.iter().map(|mobile| &mobile.host));
        let reached: BTreeSet<&String> = linked.chain(in_cells).collect();
        for (index, node) in self.configs.iter().enumerate() {
            if !reached.contains(&node.name) {
                let message = format!("nothing reaches \"{}\": no [[link]] is \"between\" it and another", node.name);
                let problem = Problem::new(ErrorKind::Unreachable, message).under("name");
                return Err(match index.checked_sub(file.hosts.len()) {
                    None => problem.under_index(index).under("host"),
                    Some(index) => problem.under_index(index).under("router"),
                });
            }
        }
        Ok(())
    }
}
