# SPDX-License-Identifier: Apache-2.0
"""fp64 attention oracle + componentwise error bounds.

Two bound modes
  'gen'  probabilistic: rounding errors independent/mean-zero (or the data that multiplies them is
         generic), lambda * 2-norm accumulation.  For random inputs.
  'det'  deterministic: holds for every input and every summation order that the Profile allows.
All formulas are those of section 3 of numerics.md; names follow it.
"""
from dataclasses import dataclass, replace
import numpy as np
from fmt import *

U32 = 2.0 ** -24


@dataclass(frozen=True)
class Acc:
    """accumulation model of one matmul: block of b products per step, aligner keeps f fraction bits
    (None: exact block sum), u_norm: relative error of the step's final rounding, rz: truncation"""
    b: int = 1
    f: int = None
    u_norm: float = U32
    rz: bool = False

    def steps(self, n): return -(-n // self.b)
    def al(self): return 0.0 if self.f is None else 2.0 ** -self.f
    def det(self, n, extra=0): return self.steps(n) * ((self.b + 1) * self.al() + self.u_norm) + extra * U32
    def rand(self, n, extra=0): return np.sqrt(self.steps(n) * ((self.b + 1) * self.al() ** 2 + self.u_norm ** 2) + extra * U32 ** 2)
    def bias(self, n): return self.steps(n) * (self.al() + self.u_norm) if self.rz else 0.0
    def gen(self, n, lam, spread, mean, extra=0):
        """probabilistic accumulation error: 'spread' = 2-norm size of the partial sums, 'mean' = |result|.
        Truncation is biased: same-sign sums lose the deterministic amount."""
        e = lam * self.rand(n, extra) * (spread + mean) + self.bias(n) * spread
        return e + (self.det(n) * mean if self.rz else 0.0)


SIMT = Acc(1, None, U32, False)                    # fp32 FMA chain, any order
TC_RN16 = Acc(16, None, U32, False)
TC_RZ16 = Acc(16, None, 2 * U32, True)
TC_HOPPER = Acc(16, 25, 2 * U32, True)             # fp16/bf16 wgmma model
TC_VOLTA = Acc(4, 23, 2 * U32, True)
TC_FP8_HOPPER = Acc(32, 13, 2.0 ** -13, True)      # fp8 wgmma model: 13 fraction bits
TC_ANY = Acc(4, 23, 2 * U32, True)                 # pessimistic default for an unknown 16-bit tensor core


@dataclass
class Profile:
    t_in: Fmt = FP16
    t_p: Fmt = FP16
    t_out: Fmt = FP16
    qk: Acc = TC_ANY
    pv: Acc = TC_ANY
    bwd: Acc = TC_ANY              # dP, dV, dQ, dK matmuls
    exp_rel: float = 2.0 ** -22    # ex2.approx: 2 ulp
    tanh_rel: float = 2.0 ** -10.9
    log_abs: float = 2.0 ** -21.4  # __logf
    max_offset: int = 0
    BN: int = 64                   # smallest key tile the kernel may use
    lanes: int = 1                 # parallel partial sums of l (1 = unknown)
    l_from_rounded: bool = False
    k1: float = 1.0                # |tau x| roundings (unfused scale)
    k2: float = 4.0                # |s - m| roundings
    k3: float = 3.0                # |m| roundings
    u_in: float = 0.0              # operand conversion inside the kernel (e.g. tf32)
    lam: float = 4.0
    kappa: float = 2.0


def _tile_updates(s, BN):
    T = -(-s.shape[1] // BN)
    pad = T * BN - s.shape[1]
    if pad: s = np.concatenate([s, np.full((s.shape[0], pad), -np.inf)], 1)
    tm = s.reshape(s.shape[0], T, BN).max(2)
    def cnt(a):
        c = np.maximum.accumulate(a, 1); return (c[:, 1:] > c[:, :-1]).sum(1)
    return np.maximum(cnt(tm), cnt(tm[:, ::-1]))


def _gen_top(sm, lse, p, delta, vis, empty, lam):
    """max_j p_j eta'_j^2 / p_top^2 with the top key's score error moved to the other keys"""
    rows = np.arange(sm.shape[0]); top = np.argmax(sm, 1)
    dt = lam * np.sqrt(delta ** 2 + delta[rows, top][:, None] ** 2)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = np.where(vis, np.where(empty, 0, lse)[:, None] - sm, np.inf)
        w = np.exp(np.minimum(-gap + 2 * np.log(np.maximum(np.expm1(np.minimum(dt, 600)), 1e-300)), 600)); w[rows, top] = 0
        # other keys all carry the (correlated) error of the top key: sum instead of max for that part
        return w.sum(1) / lam ** 2 / np.where(empty, 1, np.maximum(p[rows, top], 1e-300)) ** 2


def _shared_det(sm, lse, p, dd, vis, empty, var, V, Va, rp, dropout):
    """Rigorous (not first-order) bound for weights w_j = e^{s_j} e^{d_j}, |d_j| <= dd_j, shared by numerator
    and denominator:  |Ohat - O| <= sum_j p_j (e^{dd}-1)|v_j - O| / sum_j p_j e^{-dd},  by Cauchy-Schwarz
    <= sqrt(sum p (e^dd-1)^2) sqrt(Var_p v) / den;  second form: reference = the top key, whose own error
    is moved to the others.  The smaller of the two, capped by the hull of the visible V."""
    n = sm.shape[0]; rows = np.arange(n)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        ex = np.expm1(np.minimum(dd, 300.0)) * vis
        den = np.where(empty, 1, np.maximum((p * np.exp(-dd)).sum(1), 1e-300))
        a = np.sqrt((p * ex ** 2).sum(1)) / den
        top = np.argmax(sm, 1)
        dt = dd + dd[rows, top][:, None]
        gap = np.where(vis, np.where(empty, 0, lse)[:, None] - sm, np.inf)
        lg = np.where(dt > 1e-3, dt + np.log1p(-np.exp(-np.maximum(dt, 1e-300))), np.log(np.maximum(np.expm1(np.minimum(dt, 1)), 1e-300)))
        lw = -gap + 2 * lg; lw[rows, top] = -np.inf
        b = np.sqrt(np.exp(np.minimum(lw, 600)).sum(1)) / np.where(empty, 1, np.maximum(p[rows, top], 1e-300))
        bad = ((gap > 600) & vis & (dt > gap - 60)); bad[rows, top] = False
    coef = np.where(bad.any(1), np.inf, np.minimum(a, b))
    coef = np.where(empty, 0, coef)
    std = np.sqrt(var)
    with np.errstate(invalid="ignore"):
        lin = np.where((coef[:, None] == 0) | ((std == 0) & np.isfinite(coef)[:, None]), 0, coef[:, None] * std)
    hull = (V.max(0) - V.min(0))[None] if not dropout else 2 * Va.max(0)[None] * rp
    hull = hull * ~empty[:, None]
    return ex, np.minimum(lin, hull), np.minimum(lin, Va.max(0)[None] * rp)


def slope_error(pf, s0, t, sd, softcap, product):
    """error of 1 - t^2, t = tanh(s0 / softcap): absolute, plus what the argument's error moves"""
    t2 = 1 - sd
    return 2 * pf.tanh_rel * t2 + 3 * U32 + 2 * np.sqrt(t2) / softcap * (product + 2 * U32 * np.abs(s0) * sd)


def oracle(prof, heads, K, V, tau, mode="gen", mask=None, bias=None, softcap=0.0, Z=None, pdrop=0.0,
           bwd=True, chunk=64, exact_abs=False):
    """heads: list of (Q, dO) sharing K, V (GQA group).  mask/bias/Z: arrays [Sq,Sk] or list per head.
    Returns list of per-head dicts and the dK/dV dict."""
    pf = prof; lam = pf.lam; kap = pf.kappa; gen = mode == "gen"
    K = np.asarray(K, np.float64); V = np.asarray(V, np.float64)
    Sk, d = K.shape; dv = V.shape[1]
    pick = lambda a, h: None if a is None else (a[h] if isinstance(a, list) else a)
    k2n = np.sqrt((K ** 2).sum(1)); k4n = ((K ** 4).sum(1)) ** .25
    v2n = np.sqrt((V ** 2).sum(1)); v4n = ((V ** 4).sum(1)) ** .25
    V2 = V * V; Va = np.abs(V); K2 = K * K; Ka = np.abs(K)
    up, subp, S = pf.t_p.u, pf.t_p.sub, 2.0 ** pf.max_offset
    uo, subo = pf.t_out.u, pf.t_out.sub
    if pf.t_in is not FP64:                         # fp32 intermediates, flush-to-zero below 2^-126
        subp, subo = max(subp, 2.0 ** -125), max(subo, 2.0 ** -125)
    up_eff = up if pf.t_p is not FP64 else 0.0
    rp = 1.0 if Z is None else 1.0 / (1.0 - pdrop)
    T = -(-Sk // pf.BN)
    nl = -(-Sk // pf.lanes) + pf.lanes + T
    out_heads = []; trust_kv = np.ones(Sk, bool); wmn = np.inf; sysmax = 0.0
    ntot = sum(h[0].shape[0] for h in heads)
    dK = np.zeros((Sk, d)); dV = np.zeros((Sk, dv)); RdK = np.zeros((Sk, d)); RdV = np.zeros((Sk, dv))
    AdK = np.zeros((Sk, d)); AdV = np.zeros((Sk, dv)); FdV = np.zeros(Sk); PdV = np.zeros(Sk)
    for h, (Q, dO) in enumerate(heads):
        Q = np.asarray(Q, np.float64); Sq = Q.shape[0]
        mk, bs, z_all = pick(mask, h), pick(bias, h), pick(Z, h)
        R = dict(O=np.zeros((Sq, dv)), BO=np.zeros((Sq, dv)), LSE=np.zeros(Sq), BLSE=np.zeros(Sq), dmax=np.zeros(Sq), trust=np.ones(Sq, bool),
                 dQ=np.zeros((Sq, d)), BdQ=np.zeros((Sq, d)), var=np.zeros((Sq, dv)), sO=np.zeros((Sq, dv)), sdQ=np.zeros((Sq, d)))
        q2n = np.sqrt((Q ** 2).sum(1)); q4n = ((Q ** 4).sum(1)) ** .25
        if bwd and dO is not None:
            dO = np.asarray(dO, np.float64); o2n = np.sqrt((dO ** 2).sum(1)); o4n = ((dO ** 4).sum(1)) ** .25
        for r in range(0, Sq, chunk):
            t = slice(r, min(Sq, r + chunk)); q = Q[t]
            x = q @ K.T; s0 = tau * x
            sd = 1.0
            s = s0
            if softcap:
                s1 = softcap * np.tanh(s0 / softcap); sd = 1 - (s1 / softcap) ** 2; s = s1
            if bs is not None: s = s + bs[t]
            vis = np.ones_like(s, bool) if mk is None else mk[t]
            vis = vis & ~np.isneginf(s)
            sm = np.where(vis, s, -np.inf)
            m = sm.max(1); empty = np.isneginf(m); mm = np.where(empty, 0, m)
            with np.errstate(over="ignore", under="ignore"):
                e = np.where(vis, np.exp(sm - mm[:, None]), 0.0)
            l = e.sum(1); l1 = np.where(empty, 1, l)
            p = e / l1[:, None]
            lse = np.where(empty, -np.inf, mm + np.log(l1))
            z = None if z_all is None else z_all[t]
            pd = p if z is None else np.where(z, p * rp, 0.0)
            O = pd @ V
            M2 = (pd if z is None else pd * rp) @ V2                      # sum p (z/(1-p))^2 v^2
            var = np.maximum(M2 - O * O, 0.0)
            # ---- score error --------------------------------------------------------------
            sv = np.where(vis, s, 0.0); s0v = np.where(vis, s0, 0.0)
            sysm = U32 * (pf.k1 * np.abs(s0v) + pf.k2 * np.where(vis, mm[:, None] - sv, 0) + pf.k3 * np.abs(mm)[:, None])
            if bs is not None: sysm = sysm + 2 * U32 * np.where(vis, np.abs(bs[t]) + np.abs(sv), 0)
            if softcap: sysm = sysm + (pf.tanh_rel + 4 * U32) * np.abs(s1)
            nu = _tile_updates(sm, pf.BN)
            if gen:
                Rx = q4n[t][:, None] * k4n[None] + np.abs(x)
                dr = tau * sd * (pf.qk.rand(d) + 2 * pf.u_in) * Rx
                db = tau * sd * (pf.qk.bias(d) * Rx + (pf.qk.det(d) * np.abs(x) if pf.qk.rz else 0.0))
                eta2 = dr ** 2 + (db + sysm) ** 2 + (1 + nu[:, None]) * pf.exp_rel ** 2
                delta = np.sqrt(eta2)
            else:
                Nx = (np.abs(q) @ Ka.T) if exact_abs else q2n[t][:, None] * k2n[None]
                delta = tau * sd * (pf.qk.det(d) + 2 * pf.u_in) * Nx + sysm
                delta_exp = (1 + T) * pf.exp_rel
            delta = np.where(vis, delta, 0)
            dmax = np.where(p > 2.0 ** -60, delta, 0).max(1) if Sk else np.zeros(len(m))
            trust = (lam * dmax <= 0.5) if gen else (dmax <= 2.0)          # beyond: kernel may legitimately overflow
            R["trust"][t] = trust
            if not trust.all(): trust_kv &= ~vis[~trust].any(0)
            # ---- P rounding ---------------------------------------------------------------
            with np.errstate(divide="ignore", over="ignore"):
                pib = np.where(e > 0, np.maximum(up_eff, np.minimum(1.0, subp / (2 * S * np.where(e > 0, e, 1)))), 0)
            if pf.t_p is FP64: pib = np.zeros_like(p)
            flush_rng = (e * S < (subp if gen else max(pf.t_p.xmin, subp))) & (e > 0)
            Fi = np.where(flush_rng, np.minimum(p, subp / (2 * S) / l1[:, None]), 0).sum(1)
            if pf.t_p is FP64: Fi = np.zeros_like(Fi)
            gl = (lam * np.sqrt(nl) if gen else nl) * U32
            if gen:
                W = (pd * pib) ** 2
                R2 = W @ V2
                if pf.l_from_rounded: R2 = (np.sqrt(R2) + np.abs(O) * np.sqrt(((p * pib) ** 2).sum(1))[:, None]) ** 2
                eta = np.expm1(np.minimum(lam * delta, 300.0)) / lam       # first order when lam*delta << 1
                H = (p * eta ** 2).max(1)[:, None] * var
                htop = _gen_top(sm, lse, p, delta, vis, empty, lam)
                H = np.minimum(H, htop[:, None] * var)
                if up_eff <= 2 * U32:                                        # fp32 P: use the GEMM form
                    W2 = (p * eta) ** 2; Wd = (pd * eta) ** 2
                    H = np.minimum(H, np.maximum(Wd @ V2 - 2 * O * ((p * eta * pd * eta) @ V) + O * O * W2.sum(1)[:, None], 0))
                A = kap * np.sqrt((pd ** 2 @ V2) if up_eff == 0 else R2 / up_eff ** 2)
                pvg = pf.pv.gen(Sk, lam, A, np.abs(O), 2 * T)
                lin = np.abs(O) * (Fi + gl + 4 * U32)[:, None] + pvg
                core = lam * np.sqrt(R2 + H) + lin
                blse = (lam * np.sqrt(((p * (dr if not np.isscalar(dr) else 0)) ** 2).sum(1) + (p ** 2).sum(1) * pf.exp_rel ** 2 + nu * pf.exp_rel ** 2)
                        + (p * (db + sysm)).sum(1) + pf.exp_rel)            # last term: exp2 error may be one-sided
                if pf.l_from_rounded: blse = blse + lam * np.sqrt(((p * pib) ** 2).sum(1)) + Fi
            else:
                dd = delta + delta_exp
                ex, sh, dhull = _shared_det(sm, lse, p, dd, vis, empty, var, V, Va, rp, z is not None)
                sq = np.sqrt(M2); asq = sq + dhull                            # sum phat |v|
                core = sh + asq * (up_eff * (2 if pf.l_from_rounded else 1) + pf.pv.det(Sk, 2 * T)) \
                    + np.minimum(Fi[:, None] * rp * Va.max(0)[None], asq) + (np.abs(O) + sh) * (gl + 4 * U32)
                blse = np.where(dd.max(1) < 30, np.log1p(np.minimum((p * ex).sum(1), 1e300)), dd.max(1))
                if pf.l_from_rounded: blse = blse + up_eff + Fi
            BO = core * (1 + uo) + uo * np.abs(O) + subo / 2
            blse = blse + gl + U32 * (4 * np.abs(mm) + np.abs(np.where(empty, 0, lse))) + pf.log_abs
            BO[empty] = 0; blse = np.where(empty, 0, blse)
            if gen: R["sO"][t] = np.sqrt(((core / lam) ** 2 + (uo * O) ** 2 + (subo / 2) ** 2) / 3)
            R["O"][t], R["BO"][t], R["LSE"][t], R["BLSE"][t], R["dmax"][t], R["var"][t] = O, BO, lse, blse, dmax, var
            if not bwd or dO is None: continue
            # ================= backward =====================================================
            g = dO[t]
            dPr = g @ V.T
            dP = dPr if z is None else np.where(z, dPr * rp, 0.0)
            zr = 1.0 if z is None else np.where(z, rp, 0.0)
            D = (g * O).sum(1)
            dS = p * sd * (dP - D[:, None])
            lv = np.where(empty, 0, lse)
            sysb = U32 * (pf.k1 * np.abs(s0v) + pf.k2 * np.where(vis, np.abs(sv - lv[:, None]), 0) + pf.k3 * np.abs(lv)[:, None])
            if bs is not None: sysb = sysb + 2 * U32 * np.where(vis, np.abs(bs[t]) + np.abs(sv), 0)
            if softcap: sysb = sysb + (pf.tanh_rel + 4 * U32) * np.abs(s1)
            with np.errstate(divide="ignore", over="ignore"):
                pibb = np.where(pd > 0, np.maximum(up_eff, np.minimum(1.0, subp / (2 * np.where(pd > 0, pd, 1)))), 0)
            if pf.t_p is FP64: pibb[:] = 0
            if gen:
                sysmax = max(sysmax, float(blse.max()) + pf.exp_rel + float(np.where(pd > 2.0 ** -30, db + sysb, 0).max()))
                etab2 = dr ** 2 + (db + sysb) ** 2 + pf.exp_rel ** 2 + (blse[:, None] / lam) ** 2
                # D = rowsum(dO o O): the P-rounding error of O enters D as sum_j p pi dP_ij (coherent over the columns of V)
                dvar = (p * (dP - D[:, None]) ** 2).sum(1)
                Hd = np.minimum(((p * eta * (dP - D[:, None])) ** 2).sum(1), htop * dvar)
                RD = ((p * pib * dP) ** 2).sum(1)
                if pf.l_from_rounded: RD = (np.sqrt(RD) + np.abs(D) * np.sqrt(((p * pib) ** 2).sum(1))) ** 2
                BD = lam * np.sqrt(RD + Hd + (g ** 2 * (pvg ** 2 + (uo * O) ** 2 + (subo / 2) ** 2)).sum(1)) \
                    + np.abs(D) * (Fi + gl + 4 * U32) + lam * U32 * np.sqrt(dv) * (np.sqrt(((g * O) ** 2).sum(1)) + np.abs(D))
                ndp = (pf.bwd.rand(dv) + pf.bwd.bias(dv)) * zr * (o4n[t][:, None] * v4n[None] + np.abs(dPr)) \
                    + (pf.bwd.det(dv) * np.abs(dP) if pf.bwd.rz else 0.0)
                uf = np.where(p < 2.0 ** -124, np.minimum(p, 2.0 ** -126), 0) * np.abs(dP - D[:, None])
                noise2 = uf ** 2 + (p * sd) ** 2 * (ndp ** 2 + U32 ** 2 * (dP ** 2 + D[:, None] ** 2)) + dS ** 2 * (etab2 + 4 * U32 ** 2)
                if softcap: noise2 = noise2 + (p * (dP - D[:, None]) * slope_error(pf, s0v, s1 / softcap, sd, softcap, dr + db)) ** 2
                mag = np.abs(dS) + np.sqrt(noise2)
                rd = np.maximum(up_eff * mag, np.minimum(mag, subp / 2)) * vis
                sig2 = noise2 + rd ** 2
                RQ = sig2 @ K2
                kbar = (p * sd) @ K
                dQ = tau * (dS @ K)
                wmin = up_eff ** 2 + pf.exp_rel ** 2 + ((blse[~empty].min() if (~empty).any() else 0) / lam) ** 2 + U32 ** 2   # sig2 >= wmin dS^2
                wmn = min(wmn, wmin)
                AQ = tau * kap * np.sqrt(RQ / wmin)
                BQ = (tau * (lam * np.sqrt(RQ) + BD[:, None] * np.abs(kbar)) + blse[:, None] * np.abs(dQ)
                      + pf.bwd.gen(Sk, lam, AQ, np.abs(dQ), 2 * T) + 3 * U32 * np.abs(dQ))
                R["sdQ"][t] = np.sqrt(((BQ / lam) ** 2 + (uo * dQ) ** 2 + (subo / 2) ** 2) / 3)
                R["dQ"][t] = dQ; R["BdQ"][t] = BQ * (1 + uo) + uo * np.abs(dQ) + subo / 2
                WK = sig2 + (p * sd * (BD / lam)[:, None]) ** 2 + (dS * (blse / lam)[:, None]) ** 2
                RdK += WK.T @ (q * q); dK += tau * (dS.T @ q)
                RdV += (pd ** 2 * (pibb ** 2 + etab2)).T @ (g * g); dV += pd.T @ g
                FdV += np.where((pd < subp / 2) & (pd > 0), pd, 0).sum(0) * (0 if pf.t_p is FP64 else 1); PdV += pd.sum(0)
            else:
                ddb = tau * sd * (pf.qk.det(d) + 2 * pf.u_in) * (np.abs(q) @ Ka.T if exact_abs else q2n[t][:, None] * k2n[None]) \
                    + sysb + pf.exp_rel + blse[:, None]
                with np.errstate(over="ignore"):
                    exb = np.expm1(np.minimum(ddb, 300.0)) * vis
                # computed P cannot exceed ~1 by more than its own row's shared error; cap weights
                pex = np.minimum(p * exb, np.maximum(1 + blse[:, None] - p, 0) + p * np.minimum(exb, 1))
                BD = (np.abs(g) * BO).sum(1) + dv * U32 * (np.abs(g) * (np.abs(O) + BO)).sum(1)
                ndp = pf.bwd.det(dv) * zr * o2n[t][:, None] * v2n[None]
                gap = np.abs(dP - D[:, None])
                noise = np.where(p < 2.0 ** -124, np.minimum(p, 2.0 ** -126), 0) * gap + pex * sd * (gap + ndp + BD[:, None]) + p * sd * (ndp + U32 * (np.abs(dP) + np.abs(D)[:, None])) + 3 * U32 * np.abs(dS)
                if softcap: noise = noise + (p + pex) * (gap + ndp + BD[:, None]) * slope_error(pf, s0v, s1 / softcap, sd, softcap, tau * sd * (pf.qk.det(d) + 2 * pf.u_in) * q2n[t][:, None] * k2n[None])
                mag = np.abs(dS) + noise
                rd = np.maximum(up_eff * mag, np.minimum(mag, subp / 2)) * vis
                sl = noise + rd
                dQ = tau * (dS @ K); kbar = (p * sd) @ K
                BQ = tau * ((sl + pf.bwd.det(Sk, 2 * T) * mag) @ Ka + BD[:, None] * np.abs(kbar)) + 3 * U32 * np.abs(dQ)
                R["dQ"][t] = dQ; R["BdQ"][t] = BQ * (1 + uo) + uo * np.abs(dQ) + subo / 2
                RdK += (sl + p * sd * BD[:, None] + pf.bwd.det(ntot, 2 * T) * mag).T @ np.abs(q); dK += tau * (dS.T @ q)
                RdV += (zr * pex * (1 + up_eff) + pd * (pibb + pf.bwd.det(ntot, 2 * T))).T @ np.abs(g); dV += pd.T @ g
        out_heads.append(R)
    kv = {}
    if bwd and heads[0][1] is not None:
        if gen:
            AK = tau * kap * np.sqrt(RdK / wmn); AV = kap * np.sqrt(RdV / wmn)
            bK = tau * lam * np.sqrt(RdK) + pf.bwd.gen(ntot, lam, AK, np.abs(dK), 2 * T) + (3 * U32 + sysmax) * np.abs(dK)
            bV = lam * np.sqrt(RdV) + pf.bwd.gen(ntot, lam, AV, np.abs(dV), 2 * T) + np.abs(dV) * (3 * U32 + sysmax + FdV / np.maximum(PdV, 1e-300))[:, None]
        else:
            bK = tau * RdK + 3 * U32 * np.abs(dK); bV = RdV + 3 * U32 * np.abs(dV)
        sg = lambda b, x: np.sqrt(((b / lam) ** 2 + (uo * x) ** 2 + (subo / 2) ** 2) / 3)
        kv = dict(sdK=sg(bK, dK), sdV=sg(bV, dV), trust=trust_kv, dK=dK, dV=dV, BdK=bK * (1 + uo) + uo * np.abs(dK) + subo / 2, BdV=bV * (1 + uo) + uo * np.abs(dV) + subo / 2)
    return out_heads, kv


def ratio(got, ref, bound, F_out=None):
    """|got-ref|/bound with the conventions: equal (incl. equal infinities) -> 0; 0/0 -> 0; overflow
    to inf is accepted when |ref|+bound reaches the overflow threshold of the output format."""
    got = np.asarray(got, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        err = np.abs(got - ref)
        r = np.where(err == 0, 0.0, err / bound)
    same = (got == ref)
    r = np.where(same, 0.0, r)
    r = np.where(np.isnan(got) & ~np.isnan(ref), np.inf, r)
    if F_out is not None:
        ok = np.isinf(got) & (np.sign(got) == np.sign(ref)) & (np.abs(ref) + bound >= F_out.max)
        r = np.where(ok, 0.0, r)
    return r
