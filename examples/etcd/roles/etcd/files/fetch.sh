# Fetches the backup at $GCS_PATH, once.
set -eu
[ ! -d /var/etcd/data ] || exit 0
authorize
storage --output /var/etcd/backup.db "$GCS_URL/storage/v1/b/$bucket/o/$(echo "$object" | sed 's|/|%2F|g')?alt=media" || {
  # The answer is the error.
  head -c 500 /var/etcd/backup.db >&2
  exit 1
}
