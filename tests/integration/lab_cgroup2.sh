# Run by scripts/lab-cgroup2 in its virtual machine, as root and in a copy of the tree. The exit code is the number of failures.
export PYTHONPATH=/lab/site:$PWD/src:$PWD/seams:$PWD/providers:$PWD/policies PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
failures=0
mkdir -p /tmp/work
chown agent /tmp/work

# expect STATUS COMMAND...
expect() {
    wanted=$1
    shift
    printf '\n== %s\n' "$*"
    status=0
    "$@" || status=$?
    [ "$status" = "$wanted" ] || {
        echo "FAILED: exit code $status and not $wanted"
        failures=$((failures + 1))
    }
}

WITHIN='python3 -m execworld.cli run -q --workspace /tmp/work'
FLOOD='sh -c "head -c 200000000 /dev/zero | exec tail -n 1"'
STORM='sh -c "n=0; while [ \$n -lt 80 ]; do sleep 60 & n=\$((n+1)); done; echo all of them"'
PLACE='sh -c "tail -n 1 /proc/self/cgroup"'

# With the user's own session manager at hand, as after a login.
as_agent() {
    # shellcheck disable=SC2016 # expanded there
    su -l agent -c 'export XDG_RUNTIME_DIR=/run/user/1000 PYTHONPATH="$1" PYTHONDONTWRITEBYTECODE=1; cd /tmp/work; eval "$2"' \
        agent -- "$PYTHONPATH" "$1"
}
DELEGATED='systemd-run --user --scope -q -p Delegate=yes'
SCOPE='systemd-run --user --scope -q'

expect 0 sh -c "$WITHIN --limit memory=64M,pids=40,cpu=9 -- $PLACE"
expect 137 sh -c "$WITHIN --limit memory=64M -- $FLOOD"
expect 2 sh -c "$WITHIN --limit pids=40 -- $STORM"
for scope in "$DELEGATED" "$SCOPE"; do
    expect 0 as_agent "$scope $WITHIN --limit memory=64M,pids=40,cpu=9 -- $PLACE"
    expect 137 as_agent "$scope $WITHIN --limit memory=64M -- $FLOOD"
    expect 2 as_agent "$scope $WITHIN --limit pids=40 -- $STORM"
done
expect 125 as_agent "$WITHIN --limit memory=64M -- true"
expect 0 as_agent "$WITHIN --limit memory=64M --require limit.memory=no -- true"
expect 2 as_agent "$WITHIN --limit pids=40 -- $STORM"
expect 0 as_agent "$DELEGATED python3 -m execworld.cli doctor"
expect 0 as_agent "python3 -m execworld.cli doctor"
expect 125 systemd-run -q --pipe --wait -p User=agent -p Delegate=yes -p "Environment=PYTHONPATH=$PYTHONPATH" \
    sh -c "$WITHIN --limit memory=64M -- true"
expect 0 sh -c '! find /sys/fs/cgroup -name "execworld-*" | grep .'
expect 0 python3 -m pytest -q -p no:cacheprovider -rs tests/unit/warden/test_warden_groups.py
expect 0 python3 -m pytest -q -p no:cacheprovider -rs tests/unit/warden/test_warden_cells.py -k "a_limit or the_version"
echo $$ >/sys/fs/cgroup/cgroup.procs # the root, from which anything may be handed down
expect 0 sh -c "$WITHIN --limit memory=64M,pids=40,cpu=9 -- $PLACE"
expect 0 python3 -m pytest -q -p no:cacheprovider -rs tests/unit/warden/test_warden_cells.py -k "a_limit or the_version"
exit $failures
