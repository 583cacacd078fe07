#!/usr/bin/env python3
"""Train "Millrace Tales", the tiny English story model that Millrace carries as its default.

  python3 tools/train_default_model.py --corpus DIR --out DIR [--minutes 55 | --until HH:MM | --steps N]

From a folder of plain .txt books, without a network: (1) clean the books and cut them into stories and chapters;
(2) build a byte-level BPE tokenizer; (3) train a small Llama in bf16 with AdamW; (4) save a Hugging Face folder (hf/)
and GGUF files (tales-f16.gguf, tales-q8_0.gguf). The learning rate follows the share of the time budget used, so that
a run on a busy machine still ends on a finished cosine; the step count is printed, and --steps N repeats its length.
Needs: torch, numpy, tokenizers, safetensors, gguf. model/default/MODEL_CARD.md lists the books and the two runs that made
the file there. CC0 1.0.
"""
import argparse, collections, datetime, glob, json, math, os, re, shutil, time

def parse_arguments():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--corpus", required=True, help="folder of .txt books"); ap.add_argument("--out", required=True)
    ap.add_argument("--init", help="checkpoint to continue from")
    ap.add_argument("--until", help="stop training at HH:MM (instead of --minutes)"); ap.add_argument("--compile", action="store_true", help="torch.compile")
    for name, default, text in (("minutes", 55.0, "time for training"), ("steps", 0, "train this many steps instead"), ("batch", 8192, "tokens a step"),
                                ("micro", 2048, "tokens a pass"), ("short", 0.8, "share of the run with windows of half the context"),
                                ("lr", 2e-3, "peak learning rate"), ("warmup", 150, "steps"), ("wd", 0.1, "weight decay"), ("dropout", 0.05, ""), ("seed", 1, ""),
                                ("procs", 2, "processes"), ("threads", 1, "threads in each"), ("log", 50, "steps"), ("eval-minutes", 6.0, "between checkpoints")):
        ap.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default {default})")
    return ap.parse_args()

if __name__ == "__main__":
    ARGS = parse_arguments()               # before the imports: --help needs no torch

import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist

EOT = "<|endoftext|>"                      # between documents: serves as BOS and as EOS
BLOCK = 256                                # attention works on this many queries at a time
CFG = dict(vocab=4096, dim=256, layers=6, heads=4, kv_heads=2, head_dim=64, ffn=768,
           ctx=1024, rope_theta=10000.0, eps=1e-5)
# Books left out: perhaps still in copyright where it lasts 70 years after death (Burgess died in 1965;
# the life dates of the translators of Pinocchio and of the 1912 Aesop were not established).
SKIP = {"burgess_buster_bear.txt", "collodi_pinocchio.txt", "aesop_vernon_jones.txt"}

# ------------------------------------------------------------------------------- 1. the corpus
# Paragraphs with words that no default model should learn to say, and editors' apparatus.
DROP = re.compile(r"\b(nigg\w*|negro\w*|savages|redskins?|red ?indians?|injuns?|piccaninn\w*|squaws?|darkies|darky|"
                  r"blackamoors?|chinam[ae]n|jap|japs|jews?|jewess|gips(y|ies)|gyps(y|ies)|whores?|raped?)\b", re.I)
NOTES = re.compile(r"^(\(\d+\)|\[)|line-art|full.page|gutenberg|^(chorus|finis|the end|preface|index|contents|notes?)\b.{0,4}$|"
                   r"\b(translat(ed|ion|or)|editions?|copyright|folk-?lore|publish(ed|ers)|Perrault, |Grimm\.$|Kletke|volumes?\b.*\d{4})", re.I)
CHAPTER = re.compile(r"^([Cc]hapter\b|CHAPTER\b|(\d+|[IVXL]+)\. +[A-Z])")

def is_heading(p):
    """A chapter or story title: short, and in capitals, in Title Case, or numbered."""
    if len(p) > 100 or p[0] in "\"'(": return False
    words = re.findall(r"[A-Za-z][\w'-]*", p)
    if not words: return False
    if CHAPTER.match(p) or p.upper() == p: return True
    big = [w for w in words if len(w) > 3 or w is words[0]]
    return not re.search(r"[!?;:,\"'-]$", p) and all(w[0].isupper() for w in big) and (len(words) > 2 or p[-1] != ".")

def is_verse_or_list(lines):
    """Several short lines that mostly begin with a capital: a poem, a letter head, an index."""
    return len(lines) > 1 and sum(bool(re.match(r"[\"'(]*[A-Z\d]", l)) for l in lines[1:]) > 0.6 * (len(lines) - 1)

def load_documents(folder):
    docs, seen, stats = [], set(), collections.Counter()
    for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        if os.path.basename(path) in SKIP: continue
        text = open(path, encoding="utf-8").read()
        # Books whose speech is in single quotes are turned to double ones: one habit to learn, not two.
        if len(re.findall(r"(?:^|[\s-])'[A-Z]", text)) > text.count('"'):
            text = re.sub(r"(?<![\w\"])'(?=[A-Z\w])(?!(?:tis|twas|twill|em|un|twere|cause|bout|til)\b)|(?<=[.,!?;:-])'(?!\w)", '"', text)
        text = re.sub(r"\(\d+\)(?=\s|$)", "", re.sub(r"[{}<>|~^#@\\]", "", text))
        doc = []

        def close():                                              # and turn "ONCE upon" into "Once upon"
            body = re.sub(r"^(\"?)((?:[A-Z']{2,} ?)+)(?=[ ,a-z])", lambda m: m[1] + m[2].capitalize(), "\n\n".join(doc))
            if len(body) >= 300: docs.append(body)
            doc.clear()
        for raw in re.split(r"\n\s*\n", text):
            lines = [l.strip() for l in raw.strip().split("\n") if l.strip()]
            p = re.sub(r"\s+", " ", " ".join(lines)).strip()
            key, caps = re.sub(r"[^a-z]", "", p.lower()), re.findall(r"\b[A-Z]", p)
            if not key: continue
            p = re.sub(r"^\d+ (?=[A-Za-z\"])", "", p)             # page numbers at a paragraph's start
            why = ("notes" if NOTES.search(p) else "headings" if is_heading(p) else "offensive or dated words" if DROP.search(p) else
                   "verse and lists" if is_verse_or_list(lines) else "indexes" if len(caps) > 0.6 * len(p.split()) > 6 else
                   "duplicates" if len(key) >= 40 and key in seen else None)
            if why == "headings": close()
            if why: stats[why] += 1; continue
            seen.add(key)
            if doc and p[0].islower() and doc[-1][-1] not in ".!?\":": p = doc.pop() + " " + p   # split by a page break
            doc.append(p)
        close()
    print(f"corpus: {len(docs)} documents, {sum(map(len, docs)):,} characters; dropped paragraphs: {dict(stats)}")
    return docs

# ---------------------------------------------------------------------------- 2. the tokenizer
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

def build_tokenizer(docs, path):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(docs, trainers.BpeTrainer(vocab_size=CFG["vocab"], special_tokens=[EOT], show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.post_processor = processors.TemplateProcessing(single=f"{EOT} $A", pair=f"{EOT} $A $B", special_tokens=[(EOT, 0)])
    tok.save(path); return tok

# -------------------------------------------------------------------------------- 3. the model
def dropout(x, p, seed):
    """Dropout whose mask is a hash of (seed, position): torch's generator costs more than the model on a CPU."""
    if seed is None or p == 0: return x
    h = (torch.arange(x.numel(), dtype=torch.int32).view(x.shape) + seed) * 0x2C1B3C6D
    h = (h ^ (h >> 12)) * 0x297A2D39
    return x * ((((h ^ (h >> 15)) & 0xFFFF) >= int(p * 65536)).float() / (1 - p))

def linear(a, b): return nn.Linear(a, b, bias=False)   # names below follow Hugging Face's: state_dict() is the file

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        d, q, kv = CFG["dim"], CFG["heads"] * CFG["head_dim"], CFG["kv_heads"] * CFG["head_dim"]
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = linear(d, q), linear(d, kv), linear(d, kv), linear(q, d)

    def forward(self, x, cos, sin, mask):
        B, T, _ = x.shape
        q, k, v = (f(x).view(B, T, -1, CFG["head_dim"]).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        q, k = ((t.float() * cos + torch.cat((-t[..., CFG["head_dim"] // 2:], t[..., :CFG["head_dim"] // 2]), -1).float() * sin).to(v.dtype) for t in (q, k))
        k, v = (t.repeat_interleave(CFG["heads"] // CFG["kv_heads"], 1) for t in (k, v))
        out = []                                       # plain matrix products over blocks of queries: they reach AMX
        for a in range(0, T, BLOCK):
            b = min(T, a + BLOCK)
            s = (q[:, :, a:b] @ k[:, :, :b].transpose(2, 3)).float() * CFG["head_dim"] ** -0.5
            out.append((s + mask[a:b, :b]).softmax(-1).to(v.dtype) @ v[:, :, :b])
        return self.o_proj(torch.cat(out, 2).transpose(1, 2).reshape(B, T, -1))

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        d, f = CFG["dim"], CFG["ffn"]
        self.self_attn = Attention()
        self.mlp = nn.ModuleDict(dict(gate_proj=linear(d, f), up_proj=linear(d, f), down_proj=linear(f, d)))
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(d, CFG["eps"]), nn.RMSNorm(d, CFG["eps"])

    def forward(self, x, cos, sin, mask, p, seed):
        x = x + dropout(self.self_attn(self.input_layernorm(x), cos, sin, mask), p, seed)
        y, m = self.post_attention_layernorm(x), self.mlp
        y = m["down_proj"](F.silu(m["gate_proj"](y)) * m["up_proj"](y))
        return x + dropout(y, p, None if seed is None else seed ^ 0x5A5A5A5)

class Llama(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.model = nn.ModuleDict(dict(embed_tokens=nn.Embedding(CFG["vocab"], CFG["dim"]),
                                        layers=nn.ModuleList(Layer() for _ in range(CFG["layers"])), norm=nn.RMSNorm(CFG["dim"], CFG["eps"])))
        self.p = dropout
        freq = CFG["rope_theta"] ** (-torch.arange(0, CFG["head_dim"], 2).float() / CFG["head_dim"])
        angle, mask = torch.outer(torch.arange(CFG["ctx"]).float(), freq.repeat(2)), torch.full((CFG["ctx"], CFG["ctx"]), -1e30).triu(1)
        for name, t in (("cos", angle.cos()), ("sin", angle.sin()), ("mask", mask)): self.register_buffer(name, t, persistent=False)
        for name, w in self.named_parameters():       # GPT-2's initialisation, outputs scaled by depth
            if w.dim() == 2: nn.init.normal_(w, std=0.02 / (math.sqrt(2 * CFG["layers"]) if re.search("o_proj|down_proj", name) else 1))

    def forward(self, ids, targets=None, seeds=None):
        x = self.model["embed_tokens"](ids)
        for i, layer in enumerate(self.model["layers"]):
            x = layer(x, self.cos[:ids.shape[1]], self.sin[:ids.shape[1]], self.mask, self.p, None if seeds is None else seeds[i])
        return self.head(x, targets)

    def head(self, x, targets):
        logits = F.linear(self.model["norm"](x), self.model["embed_tokens"].weight)
        return logits if targets is None else F.cross_entropy(logits.float().view(-1, CFG["vocab"]), targets.reshape(-1))

def windows(docs, seed, ctx):
    """One epoch: documents in a fresh order, joined, cut into windows of ctx + 1 tokens, shuffled."""
    rng = np.random.default_rng(seed)
    flat = np.concatenate([docs[i] for i in rng.permutation(len(docs))])
    flat = np.roll(flat, rng.integers(ctx))
    n = (len(flat) - 1) // ctx
    return [flat[i * ctx:(i + 1) * ctx + 1] for i in rng.permutation(n)]

@torch.no_grad()
def evaluate(state, flat, limit=10**9):
    """Mean loss over windows of the held-out documents, without dropout."""
    model, ctx = Llama(), CFG["ctx"]
    model.load_state_dict(state)
    n, loss = min(limit, (len(flat) - 1) // ctx), 0.0
    for i in range(n):
        w = torch.from_numpy(flat[i * ctx:(i + 1) * ctx + 1].astype(np.int64))[None]
        with torch.autocast("cpu", torch.bfloat16): loss += model(w[:, :-1], w[:, 1:]).item()
    return loss / n

def worker(rank, world, args, train_docs, val_flat):
    """Data parallel over processes with one thread each: on few cores that beats splitting every small matrix."""
    torch.set_num_threads(args.threads); torch.manual_seed(args.seed)
    if world > 1: dist.init_process_group("gloo", rank=rank, world_size=world, init_method=f"file://{args.out}/.rendezvous")
    model = Llama(args.dropout)
    if args.init: model.load_state_dict(torch.load(args.init)["model"])     # continue an earlier run
    params = list(model.parameters())
    opt = torch.optim.AdamW([dict(params=[w for w in params if w.dim() == 2], weight_decay=args.wd),
                             dict(params=[w for w in params if w.dim() < 2], weight_decay=0.0)], lr=args.lr, betas=(0.9, 0.95), fused=True)
    if args.compile:                                    # one compiled layer serves all of them
        for layer in model.model["layers"]: layer.compile(dynamic=False)
        model.head = torch.compile(model.head, dynamic=False)
    torch.manual_seed(args.seed + 1 + rank)             # dropout differs between the processes
    ctx, queue, epoch, step, seen, t0 = 0, [], -1, 0, 0, None
    next_eval = time.time() + 60 * args.eval_minutes
    while True:
        done = step / args.steps if args.steps else 0.0 if t0 is None else (time.time() - t0) / max(1.0, args.seconds)
        if world > 1:                                   # rank 0's clock decides for all
            share = torch.tensor([done], dtype=torch.float64); dist.broadcast(share, 0); done = share.item()
        if done >= 1: break
        want = CFG["ctx"] // 2 if done < args.short else CFG["ctx"]    # short windows first: attention is dear on a CPU
        if want != ctx: ctx, queue = want, []
        micro = max(1, args.micro // ctx); accum = args.batch // (micro * ctx * world); total = 0.0
        for group in opt.param_groups:
            group["lr"] = args.lr * min(1, (step + 1) / args.warmup) * (0.02 + 0.49 * (1 + math.cos(math.pi * done)))
        for _ in range(accum):
            if len(queue) < micro * world: epoch += 1; queue = windows(train_docs, args.seed * 1000 + epoch, ctx)
            batch, queue = queue[:micro * world], queue[micro * world:]
            w = torch.from_numpy(np.stack(batch[rank::world]).astype(np.int64))
            seeds = torch.randint(0, 2**31 - 1, (CFG["layers"],), dtype=torch.int32)
            with torch.autocast("cpu", torch.bfloat16): loss = model(w[:, :-1].contiguous(), w[:, 1:].contiguous(), seeds)
            (loss / (accum * world)).backward(); total += loss.item() / accum; seen += micro * world * ctx
        if world > 1:
            flat = torch.cat([w.grad.view(-1) for w in params]); dist.all_reduce(flat)
            for w, g in zip(params, flat.split([w.numel() for w in params])): w.grad.copy_(g.view_as(w))
        norm = nn.utils.clip_grad_norm_(params, 1.0)
        opt.step(); opt.zero_grad(set_to_none=False); step += 1
        if t0 is None:                                  # the first step compiles: it does not count
            t0 = time.time()
            if args.until: args.seconds = args.end - t0
        if rank == 0 and (step % args.log == 0 or step < 4):
            print(f"step {step:5d} epoch {seen / args.tokens:5.2f} ctx {ctx} loss {total:.3f} lr {opt.param_groups[0]['lr']:.2e} norm {norm:.2f} "
                  f"{seen / max(1e-9, time.time() - t0):.0f} tok/s {100 * done:.1f}%", flush=True)
        if rank == 0 and time.time() > next_eval:
            print(f"  validation (24 windows) {evaluate(model.state_dict(), val_flat, 24):.4f}", flush=True)
            torch.save(dict(model=model.state_dict(), step=step), f"{args.out}/checkpoint.tmp")
            os.replace(f"{args.out}/checkpoint.tmp", f"{args.out}/checkpoint.pt"); next_eval = time.time() + 60 * args.eval_minutes
    if rank == 0:
        v = evaluate(model.state_dict(), val_flat)
        info = dict(steps=step, epochs=round(seen / args.tokens, 2), tokens=seen, seconds=round(time.time() - t0), val_loss=v, val_perplexity=math.exp(v),
                    val_tokens=len(val_flat), train_tokens=args.tokens, parameters=sum(w.numel() for w in params), settings=vars(args))
        print("done:", json.dumps(info), flush=True)
        torch.save(dict(model=model.state_dict(), info=info), f"{args.out}/checkpoint.pt")

# ------------------------------------------------------------------------------- 4. the export
def export_hf(state, out, tok_path):
    from safetensors.torch import save_file
    os.makedirs(out, exist_ok=True); shutil.copy(tok_path, f"{out}/tokenizer.json"); c = CFG
    save_file({k: v.contiguous() for k, v in state.items()}, f"{out}/model.safetensors", metadata={"format": "pt"})
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=c["vocab"], hidden_size=c["dim"], intermediate_size=c["ffn"],
                  num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"],
                  max_position_embeddings=c["ctx"], rms_norm_eps=c["eps"], rope_theta=c["rope_theta"], hidden_act="silu", attention_bias=False,
                  mlp_bias=False, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, torch_dtype="float32")
    tokenizer = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=EOT, eos_token=EOT, model_max_length=c["ctx"], clean_up_tokenization_spaces=False)
    for name, value in (("config", config), ("tokenizer_config", tokenizer)): json.dump(value, open(f"{out}/{name}.json", "w"), indent=1)

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm"}

def export_gguf(state, path, tok_path, kind):
    """llama.cpp's conventions: q and k rows interleaved for its RoPE pairing, norms in F32, no output.weight (tied)."""
    import gguf
    c, w, Q = CFG, gguf.GGUFWriter(path, "llama"), gguf.GGMLQuantizationType
    qtype, ftype = {"f16": (Q.F16, gguf.LlamaFileType.MOSTLY_F16), "q8_0": (Q.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0)}[kind]
    w.add_name("Millrace Tales"); w.add_license("CC0-1.0"); w.add_languages(["en"]); w.add_file_type(ftype)
    w.add_description("A tiny story model trained from scratch on public-domain fairy tales and children's books.")
    w.add_context_length(c["ctx"]); w.add_embedding_length(c["dim"]); w.add_block_count(c["layers"]); w.add_feed_forward_length(c["ffn"])
    w.add_head_count(c["heads"]); w.add_head_count_kv(c["kv_heads"]); w.add_key_length(c["head_dim"]); w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"]); w.add_rope_freq_base(c["rope_theta"]); w.add_layer_norm_rms_eps(c["eps"])
    w.add_vocab_size(c["vocab"]); w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    bpe = json.load(open(tok_path))["model"]
    vocab = sorted(bpe["vocab"], key=bpe["vocab"].get)
    w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre("llama-bpe"); w.add_token_list(vocab)
    w.add_token_types([gguf.TokenType.CONTROL if s == EOT else gguf.TokenType.NORMAL for s in vocab])
    w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in bpe["merges"]])
    w.add_bos_token_id(0); w.add_eos_token_id(0); w.add_add_bos_token(True)
    for key, v in state.items():
        a, (layer, name) = v.float().numpy(), re.match(r"(model\.layers\.\d+\.)?(.*)\.weight", key).groups()
        if NAMES[name] in ("attn_q", "attn_k"):       # halves (x0..x31, x32..x63) -> pairs (x0, x32, x1, x33, ...)
            a = a.reshape(-1, 2, c["head_dim"] // 2, a.shape[1]).swapaxes(1, 2).reshape(a.shape)
        q = Q.F32 if a.ndim == 1 else qtype
        w.add_tensor((f"blk.{layer.split('.')[2]}." if layer else "") + NAMES[name] + ".weight", gguf.quants.quantize(np.ascontiguousarray(a), q), raw_dtype=q)
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

def main(args):
    os.makedirs(args.out, exist_ok=True)
    docs, tok_path = load_documents(args.corpus), f"{args.out}/tokenizer.json"
    held = set(np.random.default_rng(args.seed).permutation(len(docs))[:max(1, len(docs) // 50)].tolist())   # 2 % for validation
    tok = build_tokenizer([d for i, d in enumerate(docs) if i not in held], tok_path)
    assert tok.get_vocab_size() == CFG["vocab"] and tok.token_to_id(EOT) == 0
    ids = [np.array(e.ids, dtype=np.uint16) for e in tok.encode_batch(docs)]     # each starts with <|endoftext|>
    train_docs, val_flat = [a for i, a in enumerate(ids) if i not in held], np.concatenate([a for i, a in enumerate(ids) if i in held])
    args.tokens, chars = sum(map(len, train_docs)), sum(len(d) for i, d in enumerate(docs) if i in held)
    print(f"tokens: train {args.tokens:,}, validation {len(val_flat):,} ({chars / len(val_flat):.2f} characters a token)", flush=True)
    args.seconds = 60 * args.minutes
    if args.until: args.end = datetime.datetime.combine(datetime.date.today(), datetime.time(*map(int, args.until.split(":")))).timestamp()
    if os.path.exists(f"{args.out}/.rendezvous"): os.remove(f"{args.out}/.rendezvous")
    if args.procs == 1: worker(0, 1, args, train_docs, val_flat)
    else: torch.multiprocessing.spawn(worker, (args.procs, args, train_docs, val_flat), nprocs=args.procs)
    state = torch.load(f"{args.out}/checkpoint.pt")["model"]
    export_hf(state, f"{args.out}/hf", tok_path)
    for kind in ("f16", "q8_0"): export_gguf(state, f"{args.out}/tales-{kind}.gguf", tok_path, kind)
    print("wrote", ", ".join(f"{p} ({os.path.getsize(p):,} bytes)" for p in sorted(glob.glob(f"{args.out}/*.gguf"))))

if __name__ == "__main__":
    main(ARGS)
