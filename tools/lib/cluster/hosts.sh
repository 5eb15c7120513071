# hosts.sh: sourced by suite.sh. Hosts made of namespaces: each has a network, and a name, of its own; a bridge joins them.
# shellcheck shell=bash
#
# All of it lies in the namespaces that the suite was started in, so nothing has to be taken down: with the suite's first
# process everything ends that it made, whatever became of it.

export network=10.178.0

# make_head: the machine that the others are reached from. Its files in /run are not the real machine's.
make_head() {
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /dev/shm
  export TMPDIR=/run/cluster XDG_RUNTIME_DIR=/run/cluster/user HOME=/run/cluster/home
  mkdir -p "$TMPDIR" "$HOME"
  mkdir -m 0700 "$XDG_RUNTIME_DIR"
  hostname head
  printf '127.0.0.1 localhost\n%s.1 head\n%s.10 node0\n%s.11 node1\n' $network $network $network >"$TMPDIR/hosts"
  mount --bind "$TMPDIR/hosts" /etc/hosts
  ip link set lo up
  ip link add cluster type bridge
  ip address add $network.1/24 dev cluster
  ip link set cluster up
}

# make_host NAME: its address is what /etc/hosts says, but for the host itself: as Debian does it, that knows its own name by an
# address that nobody else reaches.
make_host() {
  local name=$1 address pid
  address=$(getent hosts "$name" | cut -d' ' -f1)
  sed "s/^$address $name/127.0.1.1 $name/" "$TMPDIR/hosts" >"$TMPDIR/hosts-$name"
  unshare --net --uts --mount bash -c "mount --bind '$TMPDIR/hosts-$name' /etc/hosts && hostname $name && exec sleep infinity" &
  pid=$!
  disown "$pid"
  until [[ $(nsenter -t "$pid" --uts hostname) == "$name" ]]; do sleep 0.02; done
  ip link add "$name" type veth peer name eth0 netns "$pid"
  ip link set "$name" master cluster up
  nsenter -t "$pid" --net ip link set lo up
  nsenter -t "$pid" --net ip address add "$address/24" dev eth0
  nsenter -t "$pid" --net ip link set eth0 up
  echo "$pid" >"$TMPDIR/$name.pid"  # The process that keeps the host's namespaces.
}

# on HOST COMMAND...: runs it there.
on() {
  local name=$1
  shift
  nsenter -t "$(cat "$TMPDIR/$name.pid")" --net --uts --mount -- "$@"
}

# make_remote_shell PATH: what mpirun starts its daemons with in place of ssh: PATH [OPTION...] HOST COMMAND...
make_remote_shell() {
  cat >"$1" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec nsenter -t "\$(cat "$TMPDIR/\$host.pid")" --net --uts --mount -- bash -c "\$*"
END
  chmod +x "$1"
}
