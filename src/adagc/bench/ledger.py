@dataclass(frozen=True)
class Plan:
    """What makes a study this one and no other, and where its runs lie."""

    scenario: Scenario  # with the share and the epochs of the search
    method: type[Method]
    out: Path
    sampler: Sampler
    by: Choice  # whether the last or the best epoch is judged
    seeds: tuple[int, ...]
    pruning: bool
    _jobs: dict[str, list[Job]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def space(self) -> dict[str, Dimension]:
        """The options that are tuned."""
        return space(self.method)

    @cached_property
    def told(self) -> dict[str, Any]:
        """What the scenario says of the other options."""
        told = self.scenario.told(self.method.title)
        return {name: value for name, value in told.items() if name not in self.space}

    @cached_property
    def epochs(self) -> int:
        """Of every run."""
        return self.scenario.config(self.seeds[0]).epochs

    @property
    def root(self) -> Path:
        """Of all studies of the scenario."""
        return self.out / self.scenario.name / "tune"

    @property
    def folder(self) -> Path:
        """Of the runs of this study, and of others of the same method and sampler."""
        return self.root / slug(self.method.title) / self.sampler

    @cached_property
    def name(self) -> str:
        """The same on every machine that shares the folder, for the same settings only."""
        runs = [Path(job.folder).name for job in self._made(self.told, "")]
        values = [[name, dimension.values] for name, dimension in self.space.items()]
        digest = hashlib.sha256(json.dumps([runs, values], default=str).encode()).hexdigest()
        return f"{slug(self.method.title)}-{self.sampler}-{self.by}-{digest[:8]}"

    @cached_property
    def start(self) -> dict[str, Any] | None:
        """What the method does untuned, if the search could have come upon it."""
        options = self._made(self.scenario.told(self.method.title), "")[0].options
        return self._within(options)

    def jobs(self, point: Mapping[str, Any]) -> list[Job]:
        """One run per seed."""
        name = name_of(point)
        key = repr(sorted(point.items()))
        if key not in self._jobs:
            self._jobs[key] = self._made({**self.told, **point}, name)
        return self._jobs[key]

    def _made(self, options: Mapping[str, Any], name: str) -> list[Job]:
        label = f"{self.method.title} {name}"
        jobs = [
            make_job(self.scenario, self.method.title, seed, self.out, options=options, label=label)
            for seed in self.seeds
        ]
        place = self.folder / slug(name)[:_LONGEST]
        return [replace(job, folder=str(place / Path(job.folder).name)) for job in jobs]

    def _within(self, options: Mapping[str, Any]) -> dict[str, Any] | None:
        point = {name: options.get(name) for name in self.space}
        good = all(self.space[name].contains(value) for name, value in point.items())
        return point if good else None

    def found(self) -> Iterator[dict[str, Any]]:
        """The points whose runs lie in the folder and have the settings of this study."""
        runs = self.folder.glob(f"*/seed{self.seeds[0]}-*/config.yaml")
        for path in sorted(runs, key=lambda path: path.stat().st_mtime_ns):
            try:
                options = Run.open(path.parent).config["method"]
            except AdagcError:
                continue  # damaged: nothing to take up
            point = self._within(options)
            if point is not None and self.jobs(point)[0].folder == str(path.parent):
                yield point

    def state(self, point: Mapping[str, Any]) -> State:
        """What the folders say."""
        jobs = self.jobs(point)
        states = {job.status for job in jobs}
        if states == {"finished"}:
            return "finished"
        if any(job.run.path(PRUNED).exists() for job in jobs):
            return "pruned"
        if "failed" in states:
            return "failed"
        return "missing" if states == {"missing"} else "started"

    def read(self, point: Mapping[str, Any]) -> Trial:
        """What may be known of a trial."""
        noisy, seconds, epochs, reason = {}, 0.0, 0, ""
        for job in self.jobs(point):
            lines = job.run.history
            seconds += sum(line["seconds"] for line in lines)
            epochs += len(lines)
            if job.status == "finished":
                values = [noisy_map(line) for line in lines]
                noisy[job.seed] = values[-1] if self.by == "last" else max(values)
            elif job.status == "failed":
                reason = reason or failure_of(job)
        return Trial(dict(point), self.state(point), noisy, seconds, epochs, reason)


class Claim:
    """A trial that this process works on and no other; the claim ends with the process."""

    def __init__(self, point: dict[str, Any], jobs: list[Job], trial: Any, lock: FileLock) -> None:
        self.point, self.jobs, self.trial = point, jobs, trial
        self._lock = lock
        self._steps: set[int] = set()

    def report(self, step: int, value: float) -> None:
        """Tell the pruner; what it was told before, it is not told again."""
        if step not in self._steps:
            self._steps.add(step)
            self.trial.report(value, step)

    def hopeless(self) -> bool:
        """Whether the pruner would stop here."""
        return bool(self.trial.should_prune())

    def release(self) -> None:
        """Let go."""
        self._lock.release()


class Ledger:
    """Which trials wait, run and are done: one file for all processes, also on other machines.

    All that reads and then writes it happens under one lock, which the system takes back from a
    process that dies. Whoever takes a trial holds the trial's own lock: a trial that counts as
    running while its lock is free was abandoned, and is handed out again.
    """

    def __init__(self, plan: Plan, trials: int | None) -> None:
        check_range("trials", trials, 1)
        self._optuna = _optuna()
        self._plan = plan
        self._wanted = trials
        self._distributions = {
            name: self._distribution(dimension) for name, dimension in plan.space.items()
        }
        name = plan.name  # which checks all settings, before anything is written
        plan.root.mkdir(parents=True, exist_ok=True)
        path = plan.root / "studies.journal"
        self._lock = FileLock(path.with_suffix(".lock"))  # not Optuna's own studies.journal.lock
        with self._lock:
            self._study = self._open(path, name)
            self._fill()
            self._mend()

    def take(self) -> Claim | None:
        """The next trial; waits while other processes might leave one, None when all are done."""
        while True:
            with self._lock:
                self._take_back()
                trials = self._trials()
                if self._more(trials):
                    claim = self._claim(self._begun(trials))
                    if claim is not None:
                        return claim
                elif not any(trial.state.name == "RUNNING" for trial in trials):
                    return None
            time.sleep(_POLL)

    def close(self, claim: Claim) -> Trial:
        """Note how it ended, which its folders say."""
        trial = self._plan.read(claim.point)
        states = self._optuna.trial.TrialState
        if trial.score is not None:
            self._study.tell(claim.trial, trial.score)
        else:
            ended = states.PRUNED if trial.state == "pruned" else states.FAIL
            self._study.tell(claim.trial, state=ended)
        return trial

    def points(self) -> list[dict[str, Any]]:
        """Everything that was handed out, once, in the order of the grid or of the trials."""
        found = (self._point(trial) for trial in self._trials())
        known = {_key(point): point for point in found if point is not None}
        if self._plan.sampler == "grid":
            return [point for point in grid(self._plan.space) if _key(point) in known]
        return list(known.values())

    def _open(self, path: Path, name: str) -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        _drop_half_a_line(path)
        try:
            # Optuna's own locks are files, which a process that is killed leaves behind.
            storage = JournalStorage(JournalFileBackend(str(path), cast(Any, self._lock)))
        except (ValueError, KeyError):
            raise AdagcError(
                f"{path} is damaged: delete it, the trials are found again in their folders"
            ) from None
        pruners = self._optuna.pruners
        patience = max(1, self._plan.epochs // 3)
        return self._optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            load_if_exists=True,
            pruner=pruners.MedianPruner(n_warmup_steps=patience)
            if self._plan.pruning
            else pruners.NopPruner(),
        )

    def _distribution(self, dimension: Dimension) -> Any:
        kinds = self._optuna.distributions
        if self._plan.sampler == "grid" or dimension.bounds is None:
            return kinds.CategoricalDistribution(dimension.values)
        low, high = dimension.bounds
        kind = kinds.IntDistribution if dimension.whole else kinds.FloatDistribution
        return kind(low, high, log=dimension.log)

    def _fill(self) -> None:
        """Queue what is known from the start."""
        if self._plan.sampler == "grid":
            points = grid(self._plan.space, self._wanted)
        elif self._trials():
            points = []
        else:
            # The journal is new. Its folders may not be; they are quickly gone through.
            start = [] if self._plan.start is None else [self._plan.start]
            points = [*start, *self._plan.found()]
        for point in points:
            self._study.enqueue_trial(point, skip_if_exists=True)

    def _mend(self) -> None:
        """Queue again what ended without a result, or whose folder is gone."""
        open_ = {_key(self._point(t)) for t in self._trials() if not t.state.is_finished()}
        for point in self.points():
            lost = self._plan.state(point) not in ("finished", "pruned")
            if lost and _key(point) not in open_:
                self._again(point)

    def _take_back(self) -> None:
        """Queue again what was abandoned."""
        for trial in self._trials():
            if trial.state.name != "RUNNING":
                continue
            point = self._point(trial)
            lock = None if point is None else self._locked(point)
            if point is not None and lock is None:
                continue  # somebody is at it
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            if point is not None and lock is not None:
                lock.release()
                self._again(point)

    def _again(self, point: dict[str, Any]) -> None:
        # Optuna knows no way back from an ended trial; a second one stands for it.
        self._study.enqueue_trial(point, user_attrs={"again": True})

    def _more(self, trials: Sequence[Any]) -> bool:
        if any(trial.state.name == "WAITING" for trial in trials):
            return True
        return self._plan.sampler == "tpe" and len(self._begun(trials)) < (self._wanted or TRIALS)

    def _begun(self, trials: Sequence[Any]) -> list[dict[str, Any]]:
        """What was handed out; what was handed out again counts once."""
        points = [self._point(trial) for trial in trials if "again" not in trial.user_attrs]
        return [point for point in points if point is not None]

    def _claim(self, begun: Sequence[dict[str, Any]]) -> Claim | None:
        samplers = self._optuna.samplers
        # Seeded by what there is: no two processes draw alike, and a search can be repeated.
        seed = zlib.crc32(repr(sorted(map(repr, begun))).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant_liar counted as experimental once
            self._study.sampler = samplers.TPESampler(seed=seed, constant_liar=True)
        trial = self._study.ask(self._distributions)
        point = self._fit(trial.params)
        lock = self._locked(point)
        # Without the lock somebody is at the same options under another number: wait for them.
        return None if lock is None else Claim(point, self._plan.jobs(point), trial, lock)

    def _locked(self, point: Mapping[str, Any]) -> FileLock | None:
        """The lock of a trial, if nobody has it."""
        folder = Path(self._plan.jobs(point)[0].folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{folder}.trial.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return lock

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _point(self, trial: Any) -> dict[str, Any] | None:
        """The options of a trial; None if its process died before it had drawn them all."""
        asked = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        return self._fit(asked) if asked.keys() == self._plan.space.keys() else None

    def _fit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a grid as they are, drawn ones with the digits that are worth telling."""
        drawn = self._plan.sampler == "tpe"
        return {
            name: dimension.fit(asked[name]) if drawn else asked[name]
            for name, dimension in self._plan.space.items()
        }


def _key(point: Mapping[str, Any] | None) -> tuple[Any, ...]:
    return () if point is None else tuple(point.items())


def _drop_half_a_line(path: Path) -> None:
    """Remove what a process that was killed while writing left: the next line would join it."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ModuleNotFoundError:
        raise MissingExtraError("optuna, which keeps the trials of a search,", "bench") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
