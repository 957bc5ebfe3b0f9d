import io.apicurio.registry.utils.converter.avro.AvroData;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.storage.Converter;

/**
 * Writes Avro as Confluent's AvroConverter does, which is in no public repository: a zero, the schema's
 * id in four bytes, the value. A source connector only writes. Config: registry.url.
 */
public class RegistryConverter implements Converter {
    private final AvroData avro = new AvroData(1000);
    private final HttpClient http = HttpClient.newHttpClient();
    private final Map<String, Integer> ids = new ConcurrentHashMap<>();
    private String url;
    private String side;

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
        url = (String) configs.get("registry.url");
        side = isKey ? "key" : "value";
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        if (value == null) return null;
        var type = avro.fromConnectSchema(schema);
        var written = new ByteArrayOutputStream();
        try {
            written.write(0);
            written.write(ByteBuffer.allocate(4).putInt(id(topic + "-" + side, type)).array());
            var encoder = EncoderFactory.get().directBinaryEncoder(written, null);
            new GenericDatumWriter<Object>(type).write(avro.fromConnectData(schema, value), encoder);
            encoder.flush();
        } catch (IOException error) {
            throw new RetriableException("the registry at " + url + " does not answer", error);
        }
        return written.toByteArray();
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        throw new UnsupportedOperationException("a source connector reads nothing");
    }

    private int id(String subject, org.apache.avro.Schema type) throws IOException {
        String text = type.toString();
        Integer known = ids.get(subject + text);
        if (known == null) {
            known = register(subject, text);
            ids.put(subject + text, known);
        }
        return known;
    }

    private int register(String subject, String text) throws IOException {
        String quoted = text.replace("\\", "\\\\").replace("\"", "\\\"");
        var request = HttpRequest.newBuilder(URI.create(url + "/subjects/" + subject + "/versions"))
            .header("Content-Type", "application/vnd.schemaregistry.v1+json")
            .POST(HttpRequest.BodyPublishers.ofString("{\"schema\": \"" + quoted + "\"}"))
            .build();
        try {
            var answer = http.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new DataException("the registry answered " + answer.statusCode() + ": " + answer.body() + " for " + text);
            }
            return Integer.parseInt(answer.body().replaceAll("\\D*\"id\"\\s*:\\s*(\\d+).*", "$1"));
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RetriableException(error);
        }
    }
}
