//! Requests of the engine as operations of ZooKeeper, within one session. Owns the mapping of ZooKeeper's errors: what was
//! surely not done is refused or failed, everything else is unknown.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kiteline_engine::store::{Key, StoreAnswer, StoreRequest};
use zookeeper_client as zk;
use zookeeper_client::{Acl, Acls, CreateMode, MultiReadResult, MultiWriteError};

use super::{
    super::{
        READ_ONLY,
        paths::Layout,
        request,
        request::{WireOp, spell},
    },
    Trouble, config,
};

/// Nodes read in one request. 500 checkpoints are 250 KB, and their paths 60 KB.
const READS_MAX: usize = 500;

/// Folders that are remembered as made; more are asked for again.
const FOLDERS_MAX: usize = 4_096;

/// Bytes and version of a node.
type Content = (Vec<u8>, i32);

/// One session at work.
pub(super) struct Session {
    client: zk::Client,
    layout: Arc<Layout>,
    chroot: String,
    acls: Vec<Acl>,
    read_only: bool,
    /// Folders that are there.
    folders: Mutex<BTreeSet<String>>,
}

impl Session {
    pub(super) fn new(client: zk::Client, config: &config::Checked, layout: Arc<Layout>, read_only: bool) -> Self {
        let (chroot, acls) = (config.chroot().to_string(), config.acls().to_vec());
        Self { client, layout, chroot, acls, read_only, folders: Mutex::default() }
    }

    /// Its number.
    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    /// Its negotiated timeout.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Serves one request.
    pub(super) async fn perform(&self, request: StoreRequest) -> StoreAnswer {
        let answered = match request {
            StoreRequest::Read(keys) => self.read(&keys).await,
            StoreRequest::Members => self.members().await,
            StoreRequest::Checkpoints => self.checkpoints().await,
            StoreRequest::Multi(_) if self.read_only => Ok(StoreAnswer::Failed(READ_ONLY.into())),
            StoreRequest::Multi(ops) => match spell(&self.layout, &ops) {
                Ok(ops) => self.write(&ops).await,
                Err(detail) => Ok(StoreAnswer::Failed(detail)),
            },
        };
        answered.unwrap_or_else(|answer| answer)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.chroot)
    }

    /// Catches up with the leader, then reads. Both are sent at once: a session's requests are served in order.
    async fn read(&self, keys: &[Key]) -> Result<StoreAnswer, StoreAnswer> {
        let root = self.at(self.layout.root());
        let mut sync = Some(self.client.sync(&root));
        let mut nodes = Vec::with_capacity(keys.len());
        for keys in keys.chunks(READS_MAX) {
            let paths: Vec<_> = keys.iter().map(|key| self.at(&self.layout.path(key))).collect();
            let contents = self.contents(&paths);
            if let Some(sync) = sync.take() {
                sync.await.map_err(|error| failure(&error, &root))?;
            }
            let contents = contents.await?;
            nodes.extend(keys.iter().zip(&contents).map(|(key, content)| {
                request::found(key, content.as_ref().map(|(data, version)| (data.as_slice(), *version)))
            }));
        }
        if let Some(sync) = sync {
            sync.await.map_err(|error| failure(&error, &root))?;
        }
        Ok(StoreAnswer::Nodes(nodes))
    }

    async fn members(&self) -> Result<StoreAnswer, StoreAnswer> {
        let folder = self.at(&self.layout.members());
        let sync = self.client.sync(&folder);
        let names = self.children(&folder);
        sync.await.map_err(|error| failure(&error, &folder))?;
        let names = names.await?;
        let mut members = Vec::with_capacity(names.len());
        for names in names.chunks(READS_MAX) {
            let paths: Vec<_> = names.iter().map(|name| format!("{folder}/{name}")).collect();
            let contents = self.contents(&paths).await?;
            // One that left between the listing and the reading is no member any more.
            members.extend(names.iter().zip(contents).filter_map(|(name, content)| Some((name, content?))));
        }
        let members = members.iter().map(|(name, (data, version))| (name.as_str(), data.as_slice(), *version));
        Ok(request::members(members))
    }

    /// Two levels are listed, the topics and the partitions of each; then all nodes are read.
    async fn checkpoints(&self) -> Result<StoreAnswer, StoreAnswer> {
        let folder = self.at(&self.layout.partitions());
        let sync = self.client.sync(&folder);
        let topics = self.children(&folder);
        sync.await.map_err(|error| failure(&error, &folder))?;
        let mut partitions = Vec::new();
        for topic in topics.await? {
            let names = self.children(&format!("{folder}/{topic}")).await?;
            partitions.extend(names.iter().filter_map(|name| Layout::partition_named(&topic, name)));
        }
        let mut checkpoints = Vec::with_capacity(partitions.len());
        for partitions in partitions.chunks(READS_MAX) {
            let paths =
                partitions.iter().map(|partition| self.at(&self.layout.path(&Key::Partition(partition.clone()))));
            let contents = self.contents(&paths.collect::<Vec<_>>()).await?;
            checkpoints.extend(partitions.iter().cloned().zip(contents));
        }
        let checkpoints = checkpoints.iter().map(|(partition, content)| {
            (partition.clone(), content.as_ref().map(|(data, version)| (data.as_slice(), *version)))
        });
        Ok(request::checkpoints(checkpoints))
    }

    /// Names of the nodes in a folder, none if the folder is not there. Sent when this is called.
    fn children(&self, folder: &str) -> impl Future<Output = Result<Vec<String>, StoreAnswer>> + Send + use<'_> {
        let (names, folder) = (self.client.get_children(folder), folder.to_string());
        async move {
            match names.await {
                Ok((names, _)) => Ok(names),
                Err(zk::Error::NoNode) => Ok(Vec::new()),
                Err(error) => Err(failure(&error, &folder)),
            }
        }
    }

    /// Contents and versions of some nodes, read together. The request is sent when this is called, not when it is awaited.
    fn contents(
        &self,
        paths: &[String],
    ) -> impl Future<Output = Result<Vec<Option<Content>>, StoreAnswer>> + Send + use<'_> {
        let mut reader = self.client.new_multi_reader();
        let added = paths.iter().try_for_each(|path| reader.add_get_data(path));
        let read = reader.commit();
        let wanted = paths.len();
        let first = paths.first().cloned().unwrap_or_default();
        async move {
            added.map_err(|error| failure(&error, &first))?;
            let results = read.await.map_err(|error| failure(&error, &first))?;
            if results.len() != wanted {
                return Err(StoreAnswer::Unknown);
            }
            let contents = results.into_iter().map(|result| match result {
                MultiReadResult::Data { data, stat } => Ok(Some((data, stat.version))),
                MultiReadResult::Error { err: zk::Error::NoNode } => Ok(None),
                MultiReadResult::Error { err } => Err(failure(&err, &first)),
                _ => Err(StoreAnswer::Unknown),
            });
            contents.collect()
        }
    }

    async fn write(&self, ops: &[WireOp]) -> Result<StoreAnswer, StoreAnswer> {
        let inside = self.folders_inside(ops);
        if inside.is_empty() {
            self.make_folders(ops).await?;
        }
        // Each operation with its place in the request, none for folders.
        let mut origins = Vec::with_capacity(ops.len() + inside.len());
        let mut writer = self.client.new_multi_writer();
        for (index, op) in ops.iter().enumerate() {
            let path = self.at(op.path());
            let added = match op {
                WireOp::Check { version, .. } => writer.add_check_version(&path, *version),
                WireOp::Create { data, ephemeral, .. } => {
                    let mode = if *ephemeral { CreateMode::Ephemeral } else { CreateMode::Persistent };
                    writer.add_create(&path, data.as_bytes(), &mode.with_acls(Acls::new(&self.acls)))
                }
                WireOp::Set { data, version, .. } => writer.add_set_data(&path, data.as_bytes(), Some(*version)),
                WireOp::Delete { version, .. } => writer.add_delete(&path, Some(*version)),
            };
            added.map_err(|error| failure(&error, &path))?;
            origins.push(Some(index));
            if matches!(op, WireOp::Create { below: None, .. }) {
                for folder in &inside {
                    let options = CreateMode::Persistent.with_acls(Acls::new(&self.acls));
                    let path = self.at(folder);
                    writer.add_create(&path, b"", &options).map_err(|error| failure(&error, &path))?;
                    origins.push(None);
                }
            }
        }
        match writer.commit().await {
            Ok(_) => {
                self.remember(inside);
                Ok(StoreAnswer::Done(ops.iter().map(WireOp::version_after).collect()))
            }
            Err(MultiWriteError::RequestFailed { source }) => Err(failure(&source, self.layout.root())),
            Err(MultiWriteError::OperationFailed { index, source }) => {
                let Some(Some(index)) = origins.get(index).copied() else { return Err(StoreAnswer::Unknown) };
                match source {
                    zk::Error::NoNode | zk::Error::NodeExists | zk::Error::BadVersion => {
                        if source == zk::Error::NoNode {
                            // Perhaps the whole pipeline was removed, its folders too.
                            self.folders.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        }
                        Ok(StoreAnswer::Refused(index))
                    }
                    error => Err(failure(&error, ops[index].path())),
                }
            }
        }
    }

    /// Folders that must be made by the request itself, since it makes the pipeline's own node.
    fn folders_inside(&self, ops: &[WireOp]) -> BTreeSet<String> {
        if !ops.iter().any(|op| matches!(op, WireOp::Create { below: None, .. })) {
            return BTreeSet::new();
        }
        needed(ops)
    }

    /// Makes the folders that are not known to be there. One that cannot be made for want of the pipeline's node is left to the
    /// request, which is refused then.
    async fn make_folders(&self, ops: &[WireOp]) -> Result<(), StoreAnswer> {
        let mut missing = needed(ops);
        {
            let known = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            missing.retain(|folder| !known.contains(folder));
        }
        let mut made = BTreeSet::new();
        for folder in missing {
            let path = self.at(&folder);
            let options = CreateMode::Persistent.with_acls(Acls::new(&self.acls));
            match self.client.create(&path, b"", &options).await {
                Ok(_) | Err(zk::Error::NodeExists) => {
                    made.insert(folder);
                }
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(failure(&error, &path)),
            }
        }
        self.remember(made);
        Ok(())
    }

    fn remember(&self, made: BTreeSet<String>) {
        let mut known = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() + made.len() > FOLDERS_MAX {
            known.clear();
        }
        known.extend(made);
    }
}

/// Folders that some operations need; sorted, so that an outer one comes before those in it.
fn needed(ops: &[WireOp]) -> BTreeSet<String> {
    let folders = ops.iter().filter_map(|op| match op {
        WireOp::Create { folders, .. } => Some(folders.iter().cloned()),
        WireOp::Check { .. } | WireOp::Set { .. } | WireOp::Delete { .. } => None,
    });
    folders.flatten().collect()
}

/// The answer to an error that no rule above has a better one for. Only errors by which ZooKeeper says that nothing was done,
/// and will not be next time either, fail; all others leave it open.
fn failure(error: &zk::Error, path: &str) -> StoreAnswer {
    match error {
        zk::Error::NoAuth
        | zk::Error::InvalidAcl
        | zk::Error::QuotaExceeded
        | zk::Error::BadArguments(_)
        | zk::Error::MarshallingError
        | zk::Error::Unimplemented
        | zk::Error::NoChildrenForEphemerals
        | zk::Error::NotEmpty => StoreAnswer::Failed(format!("ZooKeeper refuses '{path}': {error}")),
        _ => StoreAnswer::Unknown,
    }
}

/// Makes what is missing of the chroot and the folder of pipelines, and shows the right to write there and, if it is there, in
/// the pipeline's own node: a node is made and removed in one request, so that nobody sees it.
pub(super) async fn prepare(client: &zk::Client, config: &config::Checked, layout: &Layout) -> Result<(), Trouble> {
    let options = CreateMode::Persistent.with_acls(Acls::new(config.acls()));
    let base = format!("{}{}", config.chroot(), layout.base());
    let ends = base.match_indices('/').map(|(at, _)| at).skip(1).chain([base.len()]);
    for end in ends {
        let path = &base[..end];
        // Asked for first: to make what is there may be forbidden where using it is not.
        let there = client.check_stat(path).await.map_err(|error| trouble(&error, "look for", path))?;
        if there.is_none() {
            match client.create(path, b"", &options).await {
                Ok(_) | Err(zk::Error::NodeExists) => {}
                Err(error) => return Err(trouble(&error, "make", path)),
            }
        }
    }
    let root = format!("{}{}", config.chroot(), layout.root());
    let pipeline = client.check_stat(&root).await.map_err(|error| trouble(&error, "look for", &root))?;
    for folder in [Some(&base), pipeline.is_some().then_some(&root)].into_iter().flatten() {
        let probe = format!("{folder}/probe-{:x}", client.session_id().0);
        let options = CreateMode::Ephemeral.with_acls(Acls::new(config.acls()));
        let mut writer = client.new_multi_writer();
        let added = writer.add_create(&probe, b"", &options).and_then(|()| writer.add_delete(&probe, None));
        added.map_err(|error| trouble(&error, "write in", folder))?;
        writer.commit().await.map_err(|error| trouble(&error.into(), "write in", folder))?;
    }
    Ok(())
}

fn trouble(error: &zk::Error, action: &str, path: &str) -> Trouble {
    match error {
        zk::Error::NoAuth => Trouble::Failed(format!("no right to {action} '{path}' in ZooKeeper")),
        zk::Error::AuthFailed => Trouble::Failed("ZooKeeper refuses the credentials".into()),
        zk::Error::InvalidAcl => {
            Trouble::Failed(format!("no right to {action} '{path}' in ZooKeeper: it does not know the credentials"))
        }
        zk::Error::NoNode | zk::Error::Unimplemented | zk::Error::BadArguments(_) | zk::Error::QuotaExceeded => {
            Trouble::Failed(format!("could not {action} '{path}' in ZooKeeper: {error}"))
        }
        error => Trouble::Waiting(format!("could not {action} '{path}' in ZooKeeper: {error}")),
    }
}
