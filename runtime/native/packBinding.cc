// pack(pool, job): checks a packing job that comes from JavaScript and runs it on the pool.
#include <atomic>

#include "encodedBinding.h"
#include "memory.h"
#include "pack.h"
#include "pool.h"

namespace tw {
namespace {

const StorageFormat *parseFormat(const Napi::Value &value, const std::string &what) {
  return &FORMATS[integerArg(value, what, 0, FORMAT_COUNT - 1)];
}

/** A job with the memories that it reads and writes. */
struct OwnedJob {
  PackJob job;
  std::vector<std::shared_ptr<Memory>> memories;
};

PackTile parseTile(const Napi::Value &value, const PackSource &source, size_t k, OwnedJob &owner,
                   const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  const auto field = [&](const char *name, int64_t least, int64_t most) {
    return static_cast<size_t>(integerArg(object.Get(name), what + "." + name, least, most));
  };
  PackTile tile;
  const auto rows = static_cast<int64_t>(source.rows), columns = static_cast<int64_t>(k);
  tile.row = field("row", 0, rows - 1);
  tile.rows = field("rows", 1, rows - static_cast<int64_t>(tile.row));
  tile.column = field("column", 0, columns - 1);
  tile.columns = field("columns", 1, columns - static_cast<int64_t>(tile.column));
  tile.rowStride = field("rowStride", 1, MAX_EXTENT);
  tile.columnStride = field("columnStride", 1, MAX_EXTENT);
  auto memory = memoryArg(object.Get("memory"), what + ".memory");
  const size_t offset = sizeArg(object.Get("offset"), what + ".offset");
  const size_t last =
      product(tile.rows - 1, tile.rowStride, "a tile") + product(tile.columns - 1, tile.columnStride, "a tile");
  memory->requireInside(offset, product(last + 1, source.format->bytes, "a tile"), what);
  tile.data = memory->data() + offset;
  owner.memories.push_back(std::move(memory));
  return tile;
}

PackSource parseSource(const Napi::Value &value, size_t k, OwnedJob &owner, const std::string &what) {
  const Napi::Object object = objectArg(value, what);
  PackSource source;
  source.format = parseFormat(object.Get("format"), what + ".format");
  source.rows = static_cast<size_t>(integerArg(object.Get("rows"), what + ".rows", 1, MAX_EXTENT));
  const std::string kind = stringArg(object.Get("kind"), what + ".kind");
  if (kind == "memory") {
    source.kind = PackSource::Kind::Memory;
    auto memory = memoryArg(object.Get("memory"), what + ".memory");
    const size_t offset = sizeArg(object.Get("offset"), what + ".offset");
    memory->requireInside(offset, product(product(source.rows, k, "a matrix"), source.format->bytes, "a matrix"), what);
    source.data = memory->data() + offset;
    owner.memories.push_back(std::move(memory));
  } else if (kind == "random") {
    source.kind = PackSource::Kind::Random;
    if (!object.Get("seed").IsBigInt()) fail(what + ".seed must be a bigint");
    bool isLossless = false;
    source.seed = object.Get("seed").As<Napi::BigInt>().Uint64Value(&isLossless);
    const double scale = numberArg(object.Get("scale"), what + ".scale");
    source.factor = static_cast<float>(scale * 1.7320508075688772 / 65536.0);
  } else if (kind == "constant") {
    source.kind = PackSource::Kind::Constant;
    source.value = static_cast<float>(numberArg(object.Get("value"), what + ".value"));
  } else if (kind == "tiles") {
    source.kind = PackSource::Kind::Tiles;
    const Napi::Array tiles = arrayArg(object.Get("tiles"), what + ".tiles");
    size_t covered = 0;
    for (uint32_t i = 0; i < tiles.Length(); i++) {
      source.tiles.push_back(parseTile(tiles.Get(i), source, k, owner, what + ".tiles[" + std::to_string(i) + "]"));
      covered += source.tiles.back().rows * source.tiles.back().columns;
    }
    if (covered != source.rows * k) fail(what + ".tiles do not cover the matrix");
  } else if (kind == "encoded") {
    source.kind = PackSource::Kind::Encoded;
    source.encoded = encodedArg(value, what);
    if (source.encoded->rows != source.rows || source.encoded->k != k) fail(what + " is a matrix of another shape");
  } else {
    fail(what + ".kind must be memory, random, constant, tiles or encoded, not " + kind);
  }
  return source;
}

PackJob::Layout parseLayout(const Napi::Value &value) {
  const std::string name = stringArg(value, "layout");
  if (name == "rows") return PackJob::Layout::Rows;
  if (name == "panels") return PackJob::Layout::Panels;
  if (name == "vnni") return PackJob::Layout::Vnni;
  if (name == "quads") return PackJob::Layout::Quads;
  fail("layout must be rows, panels, vnni or quads, not " + name);
}

void checkRowMap(const PackJob &job) {
  size_t total = 0;
  for (const PackSource &source : job.sources) total += source.rows;
  for (size_t i = 0; i < job.rowMap.size(); i++) {
    const int32_t row = job.rowMap[i];
    if (row < -1 || (row >= 0 && static_cast<size_t>(row) >= total)) {
      fail("rowMap[" + std::to_string(i) + "] = " + std::to_string(row) + " lies outside " + std::to_string(total) +
           " rows");
    }
  }
}

std::shared_ptr<OwnedJob> parseJob(const Napi::Object &object) {
  auto owned = std::make_shared<OwnedJob>();
  PackJob &job = owned->job;
  job.layout = parseLayout(object.Get("layout"));
  if (job.layout == PackJob::Layout::Quads) {
    const std::string name = stringArg(object.Get("quads"), "quads");
    job.quads = findQuadFormat(name);
    if (job.quads == nullptr) fail("quads: there is no format " + name);
  } else {
    job.format = parseFormat(object.Get("format"), "format");
  }
  if (job.layout == PackJob::Layout::Vnni && job.format->bytes != 2)
    fail("layout vnni holds elements of 2 bytes, not " + std::to_string(job.format->bytes));
  job.k = static_cast<size_t>(integerArg(object.Get("k"), "k", 1, MAX_EXTENT));

  const Napi::Array sources = arrayArg(object.Get("sources"), "sources");
  for (uint32_t i = 0; i < sources.Length(); i++) {
    job.sources.push_back(parseSource(sources.Get(i), job.k, *owned, "sources[" + std::to_string(i) + "]"));
  }
  const Napi::Value codes = object.Get("codes");
  if (!codes.IsUndefined()) {
    const std::string kind = stringArg(codes, "codes");
    if (kind != "stored" && kind != "rounded") fail("codes must be stored or rounded, not " + kind);
    job.isStored = kind == "stored";
    job.isScales = job.layout == PackJob::Layout::Rows;
    if (job.isScales ? job.format->bytes != 4 : job.quads == nullptr || !hasWholeRows(*job.quads))
      fail("codes of whole rows lie in quads of i8, their scales in rows of f32");
    for (const PackSource &source : job.sources)
      if (job.isStored && (source.kind != PackSource::Kind::Encoded || !hasRowScales(*source.encoded, CodeType::I8)))
        fail("a source has no codes of 8 bits with scales for rows");
    if (job.isStored && !object.Get("columnScale").IsUndefined()) fail("stored codes take no columnScale");
  } else if (job.quads != nullptr) {
    if (hasWholeRows(*job.quads)) fail("codes must be stored or rounded");
    if (job.k % quadDepth(*job.quads) != 0) fail("k is not whole blocks");
    for (const PackSource &source : job.sources)
      if (source.kind != PackSource::Kind::Encoded || !holdsBlocks(*job.quads, *source.encoded))
        fail("a source of quads is not stored in their blocks");
    if (!object.Get("columnScale").IsUndefined()) fail("quads take no columnScale");
  }
  const auto [rows, columns] = typedArg<int32_t>(object.Get("rowMap"), "rowMap", napi_int32_array);
  if (columns == 0 || columns > static_cast<size_t>(MAX_EXTENT)) fail("rowMap is empty or too long");
  job.rowMap.assign(rows, rows + columns);
  checkRowMap(job);
  for (size_t i = 0; job.isScales && i < columns; i++)
    if (job.rowMap[i] < 0) fail("rowMap: padding has no scale");

  const Napi::Value scale = object.Get("columnScale");
  if (!scale.IsUndefined()) {
    const PackSource source = parseSource(scale, job.k, *owned, "columnScale");
    if (source.rows != 1) fail("columnScale must have one row");
    job.columnScale.resize(job.k);
    loadRow(source, job.k, 0, 0, job.k, job.columnScale.data());
    const Napi::Value offset = object.Get("columnOffset");
    const float added = offset.IsUndefined() ? 0 : static_cast<float>(numberArg(offset, "columnOffset"));
    if (added != 0)
      for (float &factor : job.columnScale) factor += added;
  }

  const size_t depth = roundUp(job.k, VNNI_DEPTH);
  const size_t largest = product(product(roundUp(columns, MAX_PANEL), depth, "the packed weight"), 4,
                                 "the packed weight");
  (void)largest;  // bounds every product in packedBytes
  const Slot target = Slot::parse(object.Get("target"), "target");
  if (!target.memory->isWritable()) fail("target is a mapped file and cannot be written");
  const size_t needed = packedBytes(job);
  if (target.bytes < needed) {
    fail("target holds " + std::to_string(target.bytes) + " bytes, the packed weight needs " + std::to_string(needed));
  }
  if (target.offset % 64 != 0) fail("target.offset must be a multiple of 64");
  job.target = target.data();
  owned->memories.push_back(target.memory);
  return owned;
}

}  // namespace

Napi::Value pack(const Napi::CallbackInfo &info) {
  const std::shared_ptr<Pool> pool = poolArg(info[0], "pool");
  const std::shared_ptr<OwnedJob> owned = coded(info.Env(), [&] { return parseJob(objectArg(info[1], "job")); });
  auto lease = Pool::lease(pool);
  return PromiseWorker::start(
      info.Env(),
      [pool, owned] {
        std::atomic<size_t> next{0};
        const size_t panels = panelsOf(owned->job);
        pool->run([&](int) {
          for (size_t panel = next.fetch_add(1); panel < panels; panel = next.fetch_add(1)) {
            if (pool->isStopping()) fail("Stopped while packing weights");
            packPanel(owned->job, panel);
          }
        });
      },
      [](Napi::Env env) { return env.Undefined(); }, std::move(lease));
}

}  // namespace tw
