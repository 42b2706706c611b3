# Unpacks the configuration. With `watch`, it also has Prometheus load configuration and rules again when one of the
# files has changed: the kubelet updates them some time after their Secret and ConfigMap.
unpack() {
  gunzip -c /etc/prometheus/config/prometheus.yaml.gz |
    sed "s|\$(POD_NAME)|$POD_NAME|g" > /etc/prometheus/config_out/next &&
    mv /etc/prometheus/config_out/next /etc/prometheus/config_out/prometheus.env.yaml
}

checksum() {
  cat /etc/prometheus/config/* /etc/prometheus/rules/* 2> /dev/null | md5sum
}

if [ "$1" != watch ]; then
  unpack
  exit
fi

trap exit TERM
loaded=
while sleep 2 & wait $!; do
  current=$(checksum)
  if [ "$current" != "$loaded" ] && unpack && wget -q -O /dev/null --post-data= "$RELOAD_URL"; then
    loaded=$current
    echo "Loaded $current"
  fi
done
