"""AdaGC: adaptive gradient calibration, the method of the paper.

Symbols as in the paper: student θ_S, teacher θ_T, p^S and p^T their probabilities, p̃^S the
student's averaged predictions, t the pseudo-labels, λ the weight of the regulariser, β_t and β_s
the momenta of teacher and averaged predictions, γ the teacher's share in t, α of Mixup's Beta
distribution, b_e the patience in epochs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from adagc import losses
from adagc.methods.base import Method, positives
from adagc.methods.state import AveragedNetwork, Mixup, SampleTable
from adagc.types import (
    Batch,
    Losses,
    Milestone,
    NetworkRole,
    Progress,
    Reported,
    Scores,
    Story,
    Task,
    Verdict,
)

PseudoLabels = Literal["dual", "teacher", "student", "dual-raw", "raw"]


class AdaGC(Method):
    """Warm up, detect the best epoch, then calibrate gradients.

    Stage 1, warm-up:      L = L_AN
    Stage 2, calibration:  L = L_AN + λ R,   R = I(y = 0) log(1 - p t), both reduced alike
    Teacher:               θ_T ← β_t θ_T + (1 - β_t) θ_S                 after every step
    Student memory:        p̃^S ← β_s p̃^S + (1 - β_s) p^S                 at every visit
    Pseudo-labels:         t = γ p^T + (1 - γ) p̃^S
    Mixup:                 z̃ = φ z_i + (1 - φ) z_j for z in {x, y, t},   φ ~ Beta(α, α)
    Trigger:               b_e epochs after the teacher's best mAP on noisy validation labels

    With t ≈ p an unobserved entry is driven to 1 if p > 1 / (λ - 1) and to 0 below: the larger λ,
    the less evidence is enough. If a share r of the images that contain a class have it as their
    observed label, its other labels are completed if r exceeds a critical rate, .118 for λ = 3,
    .060 for 5, .030 for 9; too large a λ adds labels that are wrong. The paper tunes λ on noisy
    validation mAP. Who knows how many labels images have can choose the smallest λ whose critical
    rate lies below the r of the hardest class; in a comparison such a λ must be declared
    (`tuned_on: clean` in its YAML file), because other methods are not told that number.

    Args:
        weight: How strongly gradients are calibrated (the paper's λ): larger values complete more
            labels, and above some value wrong ones. The paper tunes it on noisy validation mAP: 3
            and 5 on reBEN, 9 and 8 on AID.
        patience: Number of epochs without a new best validation score of the teacher after which
            calibration starts (b_e).
        teacher_momentum: Share of its old weights that the teacher keeps in every optimiser step
            (β_t); the rest comes from the student.
        teacher_warm_up: Whether the teacher is the plain mean of all student weights so far during
            its first 1 / (1 - β_t) steps, so that the random initial weights are forgotten sooner.
        memory_momentum: Share of the old value that an image's averaged student prediction keeps
            when the image is visited again, once per epoch (β_s).
        memory_start: How the averaged prediction of an image starts: with the first prediction
            made for it ("first") or with zeros ("zeros").
        balance: Share of the teacher's prediction in a pseudo-label, from 0 to 1 (γ); the rest is
            the student's.
        pseudo_labels: Which predictions make the pseudo-labels t: "dual" mixes the teacher's with
            the student's averaged ones (the paper's way), "teacher" takes the teacher's alone,
            "student" the student's averaged ones alone, "dual-raw" mixes the teacher's with the
            student's current ones, "raw" takes the student's current ones alone.
        mixup: Parameter of the Beta(α, α) distribution that the mixing share φ of two images is
            drawn from (α); larger values mix more evenly, 0 switches Mixup off.
        mixup_per: Whether one mixing share is drawn for the whole "batch" or one per "sample".
        mixup_mask: Which classes of a mixed image are calibrated: "strict" those observed in
            neither of the two images, I(ỹ = 0); "soft" all of them, weighted by 1 - ỹ; "partners"
            calibrates once with the labels of each of the two images and mixes the two losses.
        student_mode: Which statistics batch normalisation uses in the student's pass that makes
            the pseudo-labels: the running ones ("eval") or those of the batch ("train").
        minimum_warm_up: Number of epochs at the start that cannot count as the best one, because
            their validation scores are still unreliable.
        restore: Whether to go back to the best epoch (student, teacher, averaged predictions and
            optimiser) when calibration starts. Epochs trained since then still count towards the
            total.
        force_trigger: Share of all epochs, from 0 to 1, after which calibration starts even if
            `patience` has not run out; none waits for `patience` alone.
        trigger_epoch: Start calibration after exactly this epoch and ignore the validation scores;
            nothing is restored. For ablations.
        ramp_epochs: Number of epochs at the start of calibration over which λ rises linearly to
            `weight`; 0 applies it in full at once.
    """

    title: ClassVar[str] = "AdaGC"
    family: ClassVar[str] = "Proposed"
    paper: ClassVar[str] = (
        "Adaptive Gradient Calibration for Single-Positive Multi-Label Learning in Remote Sensing"
        " Image Scene Classification"
    )
    grid: ClassVar[Mapping[str, tuple[Any, ...]]] = {"weight": (2, 3, 4, 5, 6, 7, 8, 9, 10)}
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weight": (0, math.inf),
        "patience": (1, math.inf),
        "teacher_momentum": (0, 1),
        "memory_momentum": (0, 1),
        "balance": (0, 1),
        "mixup": (0, math.inf),
        "minimum_warm_up": (0, math.inf),
        "force_trigger": (0, 1),
        "trigger_epoch": (1, math.inf),
        "ramp_epochs": (0, math.inf),
    }
    trial_epochs: ClassVar[int | None] = None  # when stage 2 begins depends on the whole run
    advice: ClassVar[str] = (
        "It has two stages and needs epochs for both: 40 are a good start, the paper has 70. With"
        " fewer than 13 the second stage begins by force, before the first can have ended by"
        " itself, and the result may be worse than that of AN."
    )
    keeps: ClassVar[str] = "a teacher network, predictions per image"
    cost: ClassVar[float] = 5 / 3

    def __init__(
        self,
        *,
        weight: float = 3.0,
        patience: int = 5,
        teacher_momentum: float = 0.999,
        teacher_warm_up: bool = True,
        memory_momentum: float = 0.8,
        memory_start: Literal["first", "zeros"] = "first",
        balance: float = 0.5,
        pseudo_labels: PseudoLabels = "dual",
        mixup: float = 1.0,
        mixup_per: Literal["batch", "sample"] = "batch",
        mixup_mask: Literal["strict", "soft", "partners"] = "strict",
        student_mode: Literal["eval", "train"] = "eval",
        minimum_warm_up: int = 2,
        restore: bool = True,
        force_trigger: float | None = 0.6,
        trigger_epoch: int | None = None,
        ramp_epochs: int = 0,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.patience = patience
        self.teacher_momentum = teacher_momentum
        self.teacher_warm_up = teacher_warm_up
        self.memory_momentum = memory_momentum
        self.memory_start = memory_start
        self.balance = balance
        self.pseudo_labels = pseudo_labels
        self.mixup = mixup
        self.mixup_per = mixup_per
        self.mixup_mask = mixup_mask
        self.student_mode = student_mode
        self.minimum_warm_up = minimum_warm_up
        self.restore = restore
        self.force_trigger = force_trigger
        self.trigger_epoch = trigger_epoch
        self.ramp_epochs = ramp_epochs
        self.best_epoch = 0
        self.best_score = float("-inf")
        self.triggered_after: int | None = None  # the last epoch of warm-up

    def remarks(self, task: Task) -> Iterable[str]:
        """Say so if there are too few epochs for both stages."""
        forced = self._forced_after(task.epochs)
        # By itself warm-up ends `patience` epochs after the first that may be the best one.
        itself = self.minimum_warm_up + 1 + self.patience
        begins = self.trigger_epoch or min(forced, itself)
        if begins >= task.epochs:
            yield (
                f"{self.title}: calibration, its second stage, begins after epoch {begins:g} at the"
                f" earliest, and epoch {task.epochs} is the last: the network is trained like AN;"
                " give more --epochs"
            )
        elif self.trigger_epoch is None and forced < itself and self.force_trigger:
            enough = math.ceil((itself - 0.5) / self.force_trigger)
            yield (
                f"{self.title}: {task.epochs} epochs are too few for its two stages: calibration"
                f" begins by force after epoch {forced:g}, and warm-up takes {itself} epochs or"
                f" more to end by itself; give at least {enough} --epochs"
            )

    # -- state -------------------------------------------------------------------------------

    def setup(self, network: nn.Module, task: Task) -> None:
        """Copy the student into the teacher and create the tables with a row per image."""
        super().setup(network, task)
        rows, columns = task.observed.shape
        self.teacher = AveragedNetwork(network, self.teacher_momentum, warm_up=self.teacher_warm_up)
        self.memory = SampleTable(rows, columns)  # p̃^S
        self.targets = SampleTable(rows, columns)  # the last t of every image, for `estimates`

    def get_extra_state(self) -> dict[str, Any]:
        """The state of the trigger, stored in checkpoints."""
        return {
            "best_epoch": self.best_epoch,
            "best_score": self.best_score,
            "triggered_after": self.triggered_after,
        }

    def set_extra_state(self, state: Any) -> None:
        """Restore the state of the trigger from a checkpoint."""
        self.best_epoch = state["best_epoch"]
        self.best_score = state["best_score"]
        self.triggered_after = state["triggered_after"]

    @property
    def calibrating(self) -> bool:
        """Whether stage 2 has begun."""
        return self.triggered_after is not None

    @property
    def forced(self) -> bool:
        """Whether stage 2 began because of `force_trigger`, before `patience` had run out."""
        if self.triggered_after is None or self.trigger_epoch is not None:
            return False
        return not self._waited(self.triggered_after)

    # -- one step ----------------------------------------------------------------------------

    def loss(self, network: nn.Module, batch: Batch, progress: Progress) -> Losses:
        """L_AN in warm-up, L_AN + λ R on the mixed batch afterwards."""
        if not self.calibrating:
            logits = network(batch.images)
            self._remember(batch.index, logits.detach())
            total = losses.reduce(losses.binary_cross_entropy(logits, positives(batch.observed)))
            return Losses(total, {"assume_negative": total})

        y = positives(batch.observed)
        known = (batch.observed != 0).to(y.dtype)
        if self.mixup > 0:
            mix = Mixup.draw(
                len(y), self.mixup, batch.generator, per=self.mixup_per, device=y.device
            )
            # Before the passes that make t, so that images on other ranks are read during them.
            mixed = mix(batch.images)
        t = self._make_pseudo_labels(network, batch)
        if self.mixup > 0:
            logits = network(mixed)
            matrix = self._mixed_calibration(logits, t, known, mix)
            y = mix(y)
        else:
            logits = network(batch.images)
            matrix = losses.gradient_calibration(logits, t, known)
        assume_negative = losses.reduce(losses.binary_cross_entropy(logits, y))
        calibration = losses.reduce(matrix)
        total = assume_negative + self._weight(progress) * calibration
        return Losses(total, {"assume_negative": assume_negative, "calibration": calibration})

    def _mixed_calibration(self, logits: Tensor, t: Tensor, known: Tensor, mix: Mixup) -> Tensor:
        """(B, C) I(ỹ = 0) log(1 - p t̃), or what `mixup_mask` puts in its place."""
        if self.mixup_mask == "strict":
            return losses.gradient_calibration(logits, mix(t), mix(known))
        if self.mixup_mask == "soft":
            everywhere = torch.zeros_like(known)
            return (1 - mix(known)) * losses.gradient_calibration(logits, mix(t), everywhere)
        by_image = losses.gradient_calibration(logits, t, known)
        by_partner = losses.gradient_calibration(logits, t[mix.partner], known[mix.partner])
        return torch.lerp(by_partner, by_image, mix.share.unsqueeze(1))

    @torch.no_grad()
    def _make_pseudo_labels(self, network: nn.Module, batch: Batch) -> Tensor:
        """(B, C) pseudo-labels t = γ p^T + (1 - γ) p̃^S of the batch's images before mixing."""
        student_needed = self.pseudo_labels != "teacher"
        memory = current = None
        if student_needed:
            was_training = network.training
            network.train(self.student_mode == "train")
            logits = network(batch.images)
            # Up to torch 2.9 the pass that is trained would take the weights that autocast has cast
            # for this one, which carry no gradient.
            torch.clear_autocast_cache()
            network.train(was_training)
            current = logits.float().sigmoid()
            memory = self._remember(batch.index, logits)
        if self.pseudo_labels in ("student", "raw"):
            t = memory if self.pseudo_labels == "student" else current
            assert t is not None
        else:
            p_teacher = self.teacher(batch.images).float().sigmoid()
            if self.pseudo_labels == "teacher":
                t = p_teacher
            else:
                p_student = memory if self.pseudo_labels == "dual" else current
                assert p_student is not None
                t = self.balance * p_teacher + (1 - self.balance) * p_student
        self.targets.write(batch.index, t)
        return t

    def _remember(self, index: Tensor, logits: Tensor) -> Tensor:
        """Update p̃^S ← β_s p̃^S + (1 - β_s) p^S of these images and return the new rows."""
        return self.memory.average(
            index,
            logits.float().sigmoid(),
            self.memory_momentum,
            first=self.memory_start == "first",
        )

    def _weight(self, progress: Progress) -> float:
        if self.ramp_epochs <= 0 or self.triggered_after is None:
            return self.weight
        return self.weight * min(1.0, (progress.epoch - self.triggered_after) / self.ramp_epochs)

    def after_step(self, network: nn.Module) -> None:
        """Move the teacher towards the student."""
        self.teacher.update(network)

    # -- the trigger -------------------------------------------------------------------------

    def end_epoch(self, scores: Scores, progress: Progress) -> Verdict:
        """Keep a snapshot of the teacher's best epoch; b_e epochs later start stage 2 from it."""
        if self.calibrating:
            return Verdict.CONTINUE
        epoch = progress.epoch
        if self.trigger_epoch is not None:
            if epoch >= self.trigger_epoch:
                self.triggered_after = epoch
            return Verdict.CONTINUE
        score = scores.mean_average_precision
        if epoch > self.minimum_warm_up and score > self.best_score:
            self.best_epoch, self.best_score = epoch, score
            if not self._overdue(progress):
                return Verdict.KEEP if self.restore else Verdict.CONTINUE
        waited = self._waited(epoch)
        if not waited and not self._overdue(progress):
            return Verdict.CONTINUE
        if not waited:
            warnings.warn(
                f"calibration starts after epoch {epoch} of {progress.epochs} although the teacher"
                f" has not stood still for {self.patience} epochs yet"
                f" (force_trigger={self.force_trigger})",
                stacklevel=2,
            )
        self.triggered_after = epoch
        going_back = self.restore and 0 < self.best_epoch < epoch
        return Verdict.RESTORE if going_back else Verdict.CONTINUE

    def _waited(self, epoch: int) -> bool:
        return self.best_epoch > 0 and epoch - self.best_epoch >= self.patience

    def _overdue(self, progress: Progress) -> bool:
        return progress.epoch >= self._forced_after(progress.epochs)

    def _forced_after(self, epochs: int) -> float:
        """The epoch after which calibration begins by force; infinity if it never does."""
        if self.force_trigger is None:
            return math.inf
        return max(1, round(self.force_trigger * epochs))

    def restored(self, progress: Progress) -> None:
        """Start stage 2 from the best epoch, whose snapshot has just been loaded."""
        self.triggered_after = progress.epoch

    # -- networks and values for evaluation --------------------------------------------------

    def watched(self, network: nn.Module) -> nn.Module:
        """The teacher, whose validation scores vary less because it averages over steps."""
        return self.teacher.network

    def reported(self, network: nn.Module) -> dict[str, Reported]:
        """The student, which is deployed, and the teacher."""
        return {
            "network": Reported(network, NetworkRole.DEPLOYED, "student"),
            "teacher": Reported(self.teacher.network, NetworkRole.TEACHER),
        }

    def estimates(self) -> Tensor:
        """(N, C) the last pseudo-labels t, or the averaged predictions where there are none yet."""
        seen = self.targets.seen.unsqueeze(1)
        return torch.where(seen, self.targets.values, self.memory.values)

    def status(self) -> dict[str, Any]:
        """The stage, the best epoch so far, the last epoch of warm-up and what ended it."""
        status = {
            "stage": "calibration" if self.calibrating else "warm-up",
            "best_epoch": self.best_epoch or None,
            "triggered_after": self.triggered_after,
            "forced": self.forced,
        }
        if self.forced:
            status["remark"] = (
                "calibration was started by force (force_trigger), before the teacher's validation"
                " score had stood still"
            )
        return status

    @classmethod
    def story(cls, status: Mapping[str, Any], *, went_back: bool) -> Story:
        """When calibration began, and from where."""
        best, after = status.get("best_epoch"), status.get("triggered_after")
        marks = []
        if best is not None and best != after:
            marks.append(Milestone(best, f"best: {best}"))
        if after is None:
            stage = status.get("stage")
            said = f"Still in {stage}, not triggered yet" if stage else ""
            return Story(tuple(marks), sentence=said)
        marks.append(Milestone(after, f"triggered after {after}", strong=True))
        how = "was ended by force (force_trigger)" if status.get("forced") else "ended"
        said = f"Warm-up {how} after epoch {after}, and calibration began"
        if not went_back or best is None:
            return Story(tuple(marks), after, sentence=said)
        said += (
            f". The noisy validation had been best in epoch {best}: training went back there"
            " before it went on"
        )
        return Story(tuple(marks), after, (after, best), said)
