# Makes the data of the first member from a backup, once. Clients that watch keys notice the leap of the revision.
set -eu
[ ! -d /var/etcd/data ] || exit 0
rm -rf /var/etcd/new
etcdutl snapshot restore "$BACKUP" --data-dir=/var/etcd/new --name="$NAME" --initial-cluster="$CLUSTER" \
  --initial-cluster-token="$TOKEN" --initial-advertise-peer-urls="$PEER_URL" \
  --bump-revision=1000000000 --mark-compacted
mv /var/etcd/new /var/etcd/data
rm -f /var/etcd/backup.db
